"""The service and its page: upload documents, ask them, see the answers on their pages."""
