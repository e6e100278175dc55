"""The trust card of a model on a dataset: nine questions, each with its number and its verdict (docs/trust-card.md §8).

making         a report and trust directories -> the cards
card           what a card is, and as plain data
words          questions, what each verdict says, references, and what may not be claimed
trust_results  entries of trust directories, and which of them belong to a result of the run
stored_lines   lines 1 to 3, from stored maps
probe_lines    lines 3 to 7, from trust directories
group_lines    line 8, from attributes; failure_lines: line 9
forest         the figure
report_cards   all files, among them the page of card.html.j2 and card.css, and the table in the report

Every number is that of a study or of a probe; nothing is computed here. No report without cards imports this room.
"""
