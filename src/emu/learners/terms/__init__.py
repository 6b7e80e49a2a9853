"""What learners can be made of beside their TD error: curiosity, diversity, and what the memory adds."""
