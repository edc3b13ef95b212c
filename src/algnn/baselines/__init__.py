"""The methods that AL-GNN is compared with: a file for each family over one shared loop."""

import sys

from algnn.baselines import condensation, isolation, regularisation, replay

# version 0.1 had a module for each of these methods; their names lead to the families
_MOVED = {
    condensation: "cat",
    isolation: "pignn",
    regularisation: "ewc lwf mas twp",
    replay: "cgnn ergnn gem",
}
for _family, _names in _MOVED.items():
    for _name in _names.split():
        sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _family
