"""Classification, pairs, tagging and multiple choice on long documents: VCC beside chunks and truncation."""
