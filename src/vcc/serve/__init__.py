"""The HTTP service and its web page: upload documents, ask them, see answers on their pages."""
