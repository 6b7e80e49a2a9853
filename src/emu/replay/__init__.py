"""What is kept for learning: whole episodes (`episodes`) or single steps of them (`steps`)."""
