"""Chat templates, which come with files from anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnefc.chat import TemplateError, template
from nnefc.chat.template import Renderer

TEMPLATES = {
    "{{ bos_token }}{{ messages[0]['content'].strip() }}": "<s>hi",
    "{{ messages | tojson }}": '[{"role": "user", "content": " hi "}]',
    "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% break %}{% endfor %}": "user",
    "{% if x %}{{ raise_exception('no') }}{% endif %}{{ strftime_now('%%') }}{{ eos_token }}": "%",
}
REFUSED = {
    "{{ cycler.__init__.__globals__.os.popen('touch ran') }}": "unsafe",
    "{{ messages.append(1) }}": "unsafe",
    "{{ raise_exception('roles must\x1b[2J alternate') }}": r"roles must \[2J alternate",
    "{{ 1 + 'a' }}": "unsupported operand",
    "\n{% for %}": "line 2",
    "{% for a in range(9999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "too much",
    "{{ 'a' * 3000000000 }}": "too much",
    "{% for a in range(9999) %}{{ 'a' * 1000 }}{% endfor %}": "too much",
}


def test_chat_templates_are_rendered_as_by_transformers() -> None:
    values = {"messages": [{"role": "user", "content": " hi "}], "bos_token": "<s>"}
    for source, text in TEMPLATES.items():
        assert Renderer().render(source, values) == text


@pytest.mark.parametrize("source", REFUSED)
@pytest.mark.sample(4)
def test_chat_templates_of_strangers_are_confined(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(template, "_SECONDS", 1)
    with pytest.raises(TemplateError, match=REFUSED[source]):
        Renderer().render(source, {"messages": [{"role": "user", "content": "hi"}]})
    assert not list(tmp_path.iterdir())
