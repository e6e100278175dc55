"""The numbers of the study of errors: what is judged (judged), and the rows of its tables (rows)."""
