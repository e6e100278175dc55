"""Forward passes of the trust battery: what a map does when weights, images or prompts are changed (docs/trust.md).

`trust_run.py` plans, `running.py` runs, `directory.py` keeps rows and verdicts, `probe_images.py` chooses and reads the
images, `asking.py` asks an open model, `effects.py` makes numbers of rows. A question that needs forward passes is a
*probe* (`probe.py`).

A new probe

1. A subclass of `ImageProbe`:

       name      "deletion"; it stands in file names and is what --probe takes
       columns   its columns beside `IDENTITY`: name -> a type of Arrow, such as "string" or "float64"
       settings  what its rows depend on besides the bundle, the images and its code, of the `ProbeOptions` that it is
                 made with; all of it enters the cell's key
       passes    forward passes, at most, for an image with that many pairs, a model with that grid of maps and a prompt
                 set with that many findings; the command prints the cost before it begins
       rows      one prepared image and the open model -> rows, one for each finding with a region, or several.
                 Put all variants of the image into one array uint8 [V, 1, S, S] and call `model.ask` once: it divides
                 them into batches of the engine. Hundreds of variants of which maps are not needed go to
                 `model.ask_logits`, which takes them from a generator. Random numbers: keyed by `image.case_id` and
                 the seed of `ProbeOptions`, so that a row does not depend on the order of the images
       judge     the rows of all images, read back from the file -> `Judgement`: questions with one value for each pair
                 (NaN: none) and a criterion, lines for the reader, and facts for trust.json. It must not run a model

   A probe that must know the answers about all images before it changes one is a `SurveyProbe`; one that needs the
   model itself to change is a `StepProbe` instead.
2. A new option of the command is a field of `ProbeOptions`.
3. A line in `PROBES` (`probe.py`); `--probe`, its completion, resuming, progress, limits and files follow.

Rows go to cells/ of the trust directory, never to a run directory, and changed images never to a cache.
"""
