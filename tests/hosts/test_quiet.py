from huggingface_hub.utils import logging as hub
from transformers.utils import logging as transformers

from vcc.hosts.quiet import quietly


def test_the_libraries_are_silent_inside_and_speak_as_before_after_it() -> None:
    before = transformers.get_verbosity(), hub.get_verbosity(), transformers.is_progress_bar_enabled()
    try:
        transformers.set_verbosity_info()
        hub.set_verbosity_warning()
        transformers.enable_progress_bar()
        for failing in (False, True):
            try:
                with quietly():
                    assert transformers.get_verbosity() == hub.get_verbosity() == transformers.ERROR
                    assert not transformers.is_progress_bar_enabled()
                    assert not failing, "as planned"
            except AssertionError as error:
                assert "as planned" in str(error)
            assert (transformers.get_verbosity(), hub.get_verbosity()) == (transformers.INFO, hub.WARNING)
            assert transformers.is_progress_bar_enabled()
    finally:
        transformers.set_verbosity(before[0])
        hub.set_verbosity(before[1])
        if not before[2]:
            transformers.disable_progress_bar()
