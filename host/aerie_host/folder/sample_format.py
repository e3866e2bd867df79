"""The content of a sample's file, and the formats that the file can have.

A sample has three keys, as the training of speculators 0.3.0 reads them:

    input_ids       int64 tensor [seq]: the token ids
    hidden_states   list of bfloat16 tensors [seq, hidden]: one for each target layer, in the order in which the layers
                    were requested; the last one is the target model's last layer
    loss_mask       int64 tensor [seq]: 1 for a token that the draft model is trained on, else 0
"""

from __future__ import annotations

INPUT_IDS = "input_ids"
HIDDEN_STATES = "hidden_states"
LOSS_MASK = "loss_mask"
SAMPLE_KEYS = (INPUT_IDS, HIDDEN_STATES, LOSS_MASK)
# The keys whose value is one int64 tensor [seq].
TOKEN_KEYS = (INPUT_IDS, LOSS_MASK)

PT, SAFETENSORS = "pt", "safetensors"
FORMATS = (PT, SAFETENSORS)
# The dataset of speculators reads every file, in sub-folders too, whose name ends in these letters.
TAKEN_BY_TRAINING = "pt"
