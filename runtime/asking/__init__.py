"""Asks multimodal models behind an endpoint about a dataset, for the file that an evaluation scores (docs/ask.md).

ask_dataset      one call, from the plan to the file
ask_options      the options, each declared once; ask_rules: options -> rules of the requests
asked_pairs      which pairs are asked, in which words; ask_plan: the plan on disk; plan_lines: in words
dialect_prompts  what each dialect is asked; chat_body: the body of a request and its content key
sent_images      size, pixels and encoding of the sent image; grid_drawing: the grid of the dialect grid
view_proof       proof by token counts that the server keeps the size
endpoint         addresses and allowed hosts; http_client: requests; server_facts: models, kind, version
ask_jobs         the requests that are left; runner: threads, tries, stops; gate: how many at once; outcomes: replies
answer_log       the append-only log; asked_file: the file of answers, their counts, its folder and lock
ask_summary      what a run came to
"""
