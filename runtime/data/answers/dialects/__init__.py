"""Dialects: how multimodal models write boxes in text (docs/boxes.md §4).

dialect_registry  name -> dialect
parsed            what a dialect finds in a text, thoughts that are dropped, traces of a box
brackets          numbers in brackets: RadVLM; with tags around them: CheXagent-2, Qwen2-VL
bins              coordinates as tokens: MAIRA-2, Florence-2, PaliGemma, Kosmos-2
number_lists      lists of numbers: InternVL, DeepSeek-VL2, MedRegA
grid_cells        cells of a grid
json_lists        JSON: Qwen2.5-VL, Qwen3-VL, MedGemma 1.5, and of any model
"""
