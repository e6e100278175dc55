"""YAML that is not trusted: plain data only, and no duplicate keys."""

from __future__ import annotations

from typing import Any, Final

from .strict_json import distinct_keys

_MERGE: Final = "tag:yaml.org,2002:merge"


def parse_yaml(text: str) -> Any:
    """The content of a YAML document, of plain data.

    Raises ImportError without the package pyyaml, ValueError for text that is no YAML and for a key that a mapping has
    twice or that is not a plain value.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data only, and no duplicate keys."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        # What the merge key "<<" brings may be replaced by another key, so only the others must be distinct.
        keys = [loader.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
        distinct_keys([(key, None) for key in keys])
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep=True))

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        return yaml.load(text, Loader)
    except TypeError as error:  # of a key that cannot be one of a dict
        raise ValueError("a key is a list or a mapping") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{' '.join(str(error).split())}") from error
