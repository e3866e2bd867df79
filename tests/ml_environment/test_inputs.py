"""Data in all its formats, through real tokenizers, to samples and files."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from aerie_host.data.conversations import DataRows
from aerie_host.data.data_file import DataFile
from aerie_host.data.loss_mask import TemplateRefusedError
from aerie_host.data.samples import Encoder, Limits, prepare
from aerie_host.judge import command as judge
from aerie_host.shared.shard import Shard
from aerie_host.spec import Spec
from tests.ml_environment.conftest import ANSWERS
from tests.ml_environment.models import fast_tokenizer, slow_tokenizer
from tests.ml_environment.test_samples import CHAT, masked_texts
from tests.refusals import refused, usage_refused

TOOLS = [{"type": "function", "function": {"name": "where", "parameters": {"city": {"type": "string"}}}}]
CALL = {"type": "function", "function": {"name": "where", "arguments": {"city": "Rome"}}}
USE = [
    {"role": "user", "content": "Where is Rome?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "Italy"},
    {"role": "assistant", "content": "In Italy.", "reasoning_content": "The tool says so."},
]


def parquet(path, rows, **options):
    pa.parquet.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


@pytest.mark.parametrize("make", [fast_tokenizer, slow_tokenizer], ids=["with offsets", "without offsets"])
def test_tools_are_shown_to_the_model_and_calls_and_reasoning_are_trained_on(make):
    tokenizer = make("reasoning")
    input_ids, mask = Encoder(tokenizer).encode(USE, TOOLS)
    text = tokenizer.decode(input_ids)
    assert json.dumps(TOOLS) in text
    assert "<tool_response>Italy" in text
    shown = [run.replace(" <", "<") for run in masked_texts(tokenizer, USE)]
    assert len(shown) == 2
    assert shown[0].endswith(json.dumps(CALL["function"]) + "</tool_call><|im_end|>")
    assert shown[1] == "<think>\nThe tool says so.\n</think>\n\nIn Italy.<|im_end|>"
    assert sum(mask) < len(mask) / 2


@pytest.mark.parametrize("family", ["marked", "chatml"])
def test_calls_that_are_not_rendered_are_refused_though_their_name_is_there(family):
    said = {**USE[1], "content": "I ask where."}
    with pytest.raises(TemplateRefusedError, match="message 2: the chat template does not render its tool calls"):
        Encoder(fast_tokenizer(family)).encode([USE[0], said, *USE[2:]], TOOLS)


def test_reasoning_that_is_not_rendered_is_counted():
    encoder = Encoder(fast_tokenizer("chatml"))
    encoder.encode([USE[0], USE[3], *CHAT])
    assert encoder.reasoning_left_out == 1


@pytest.mark.parametrize("family", ["marked", "chatml"])
def test_a_template_that_raises_costs_that_conversation_alone(tmp_path, family):
    tokenizer = fast_tokenizer(family)
    tokenizer.chat_template = (
        "{%- if messages[0].content == 'bad' -%}{{ 1 / 0 }}{%- endif -%}" + tokenizer.chat_template
    )
    rows = [{"messages": CHAT}, {"messages": [{"role": "user", "content": "bad"}, CHAT[1]]}, {"messages": CHAT[:2]}]
    path = tmp_path / "data.json"
    path.write_text(json.dumps(rows))
    done = prepare(DataRows(path), lambda: Encoder(tokenizer), Limits(400))
    assert [sample.index for sample in done.samples] == [0, 2]
    assert str(done.skipped[0]) == "row 2: the chat template refuses this conversation: division by zero"


def test_half_a_character_costs_that_conversation_alone(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"messages": [{"role": "user", "content": "a\ud83c"}, CHAT[1]]}, {"messages": CHAT[:2]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = prepare(DataRows(path), lambda: Encoder(fast_tokenizer("chatml")), Limits(400))
    assert [sample.index for sample in done.samples] == [1]
    assert str(done.skipped[0]) == (r"line 1: its text has '\ud83c', one half of a character: no tokenizer takes it")


def test_parquet_gives_what_json_lines_give_over_many_row_groups(tmp_path):
    rows = [{"id": str(n), "messages": CHAT[: 2 + 2 * (n % 2)], "tools": None, "score": n} for n in range(1500)]
    rows[3]["messages"] = USE
    rows[4]["tools"] = json.dumps(TOOLS)
    # Parquet gives both calls both arguments, one of them null.
    other = {"type": "function", "function": {"name": "where", "arguments": {"river": "Tiber"}}}
    rows[5]["messages"] = [USE[0], {**USE[1], "tool_calls": [other]}, *USE[2:]]
    lines = tmp_path / "data.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = parquet(tmp_path / "data.parquet", rows, row_group_size=100)
    assert pa.parquet.ParquetFile(path).num_row_groups == 15
    for shard in (Shard(), Shard(2, 7)):
        found, wanted = DataRows(path, shard), DataRows(lines, shard)
        assert list(found) == [dataclasses.replace(entry, unit="row") for entry in wanted]
    assert (found.file.format, found.file.unit) == ("parquet", "row")


@pytest.mark.parametrize(("cut", "message"), [(-20, "after row 0"), (6, "after row 0")])
def test_a_broken_parquet_file_is_refused(tmp_path, cut, message):
    path = parquet(tmp_path / "data.parquet", [{"messages": CHAT}] * 10)
    path.write_bytes(path.read_bytes()[:cut])
    with refused(match=f"cannot be read as parquet {message}"):
        list(DataFile(path).read())


def test_token_ids_need_no_tokenizer_and_are_held_to_the_vocabulary(tmp_path):
    rows = [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}, {"input_ids": [5, 400]}, {"input_ids": list(range(9))}]
    path = parquet(tmp_path / "tokens.parquet", rows)
    done = prepare(DataRows(path), no_tokenizer, Limits(8, "truncate", 400))
    assert [(one.index, one.input_ids, one.loss_mask) for one in done.samples] == [
        (0, [5, 6, 7], [0, 1, 1]),
        (2, list(range(8)), [1] * 8),
    ]
    # As messages of the writers name it.
    assert str(done.samples[1]) == "sample 2 (row 3)"
    assert str(done.skipped[0]) == "row 2: token 400 is outside the model's vocabulary of 400"
    assert str(done.truncated[0]) == "row 3: 9 tokens, longer than 8"


def no_tokenizer():
    raise AssertionError("asked for a tokenizer")


def test_extraction_from_token_ids_without_a_tokenizer(extraction, tmp_path):
    shutil.copytree(extraction.spec["model"], tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        (tmp_path / "bare" / name).unlink(missing_ok=True)
    rows = [{"input_ids": [5 + n, 6, 7, 8], "loss_mask": [0, 0, 1, 1]} for n in range(5)] + [{"input_ids": [1, 2, 3]}]
    parquet(extraction.data, rows)
    outcome = extraction.run(model=str(tmp_path / "bare"))
    assert not outcome.failed
    assert outcome.data["format"] == "parquet: 6 token ids"
    assert outcome.data["loss_mask"] == ("given with the token ids (1 rows without a mask: every token is trained on)")
    data = torch.load(extraction.output / "data_2.pt", weights_only=True)
    assert (data["input_ids"].tolist(), data["loss_mask"].tolist()) == ([7, 6, 7, 8], [0, 0, 1, 1])


def test_shards_of_an_extraction_are_together_the_whole(extraction, tmp_path):
    extraction.write_data(ANSWERS, extra="broken")
    seen = {}
    for number in (1, 2, 3):
        output = tmp_path / f"shard-{number}"
        outcome = extraction.run(output=str(output), shard=f"{number}/3", max_skipped=1)
        manifest = json.loads((output / "manifest.json").read_text())
        assert manifest["data"]["shard"] == outcome.data["shard"] == f"{number}/3"
        assert manifest["data"]["format"].startswith(f"JSON lines, shard {number}/3")
        for item in manifest["samples"]:
            assert item["line"] == item["index"] + 1
            assert item["index"] % 3 == number - 1
            seen[item["file"]] = torch.load(output / item["file"], weights_only=True)["input_ids"].tolist()
        # The broken line, number 8 of the data, belongs to the second.
        assert [entry["line"] for entry in manifest["skipped"]] == ([8] if number == 2 else [])
    extraction.run(max_skipped=1)
    whole = {
        path.name: torch.load(path, weights_only=True)["input_ids"].tolist()
        for path in extraction.folder.training_files()
    }
    assert seen == whole


def test_two_shards_in_one_folder_are_refused_by_name(extraction):
    extraction.run(shard="1/2")
    before = extraction.digests()
    for other in ("2/2", "1/3", "1/1"):
        with refused(match=rf"changed: shard \(1/2 -> {other}\)"):
            extraction.run(shard=other)
    assert extraction.run(shard="1/2").data["nothing_to_do"]
    assert extraction.digests() == before


def test_a_shard_is_judged_as_one(extraction):
    def judged(**changes):
        given = {
            "output": str(extraction.output),
            "data": str(extraction.data),
            "layer_ids": extraction.spec["layer_ids"],
        }
        return judge.run(Spec({**given, **changes}, "judge"), False)

    extraction.run(shard="2/3")
    assert not judged(shard="2/3").failed
    assert not judged().failed
    assert "shard" in [check.name for check in judged(shard="1/3").checks.failed]
    (extraction.output / "data_4.pt").unlink()
    assert "data_4.pt" in str([check for check in judged().checks.failed if "holes" in check.name])


def test_a_folder_that_was_begun_before_shards_existed_is_whole(extraction):
    extraction.run()
    for path in (extraction.folder.fingerprint, extraction.folder.manifest):
        values = json.loads(path.read_text())
        for part in (values, values.get("fingerprint", {})):
            part.pop("shard", None)
        path.write_text(json.dumps(values))
    assert extraction.run().data["nothing_to_do"]
    with refused(match="shard"):
        extraction.run(shard="1/2")


def test_what_the_data_is_and_what_was_not_read_of_it_is_reported(extraction):
    rows = [
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "mood": "fine"}], "score": 3},
        {"messages": [{"role": "wizard", "content": "a"}, CHAT[1]]},
        {"messages": [CHAT[0], {**CHAT[1], "reasoning_content": "Hm."}, CHAT[2], {"role": "assistant", "content": ""}]},
    ]
    extraction.data.write_text(json.dumps(rows))
    with refused(match=r"1 rows give no sample, at most 0 may: row 2: message 1 has the unknown role"):
        extraction.run()
    outcome = extraction.run(max_skipped=1)
    found = {check["name"]: (check["status"], check["found"]) for check in outcome.checks.as_list()}
    assert found["format of the data"] == ("pass", "JSON array: 2 OpenAI messages, 1 ShareGPT")
    assert found["rows without a sample"][0] == "warn"
    assert found["unknown roles"] == ("warn", "wizard (1)")
    assert found["keys of messages that are not read"] == ("warn", "mood (1)")
    assert found["keys of rows that are not read"] == ("warn", "score (1)")
    assert found["reasoning that the chat template leaves out"] == ("warn", "of 1 answers")
    assert found["answers that are empty"] == ("warn", "1")
    assert outcome.data["unknown_roles"] == {"wizard": 1}
    assert outcome.data["empty_answers"] == 1


def test_data_of_no_known_format_stops_even_the_plan(extraction):
    extraction.data.write_text("question,answer\n")
    for check in (True, False):
        with usage_refused(match="neither JSON lines, a JSON array nor parquet: it begins with 'question,answer'"):
            extraction.run(check=check)
    assert not extraction.output.exists()
