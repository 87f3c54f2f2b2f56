"""The room for BoTorch: fitted models as BoTorch's acquisition functions take them.

``model`` has :class:`WarmModel`, ``fantasies`` what becomes of it given observations that were not made, ``paths`` its
posterior functions, ``drawing`` how BoTorch's own Thompson sampling finds them, ``joint_normal`` what all of them tell
BoTorch. It needs BoTorch, ``pip install 'warmgp[botorch]'``, and nothing else in the library does. It may import
everything but the command line. Add here what only users of BoTorch need.
"""

try:
    import botorch  # noqa: F401
except ImportError as error:
    raise ImportError("warmgp.botorch needs BoTorch, which is not installed: pip install 'warmgp[botorch]'") from error

from warmgp.botorch import drawing as drawing  # BoTorch learns of it there
from warmgp.botorch.fantasies import FantasyModel
from warmgp.botorch.model import WarmModel
from warmgp.botorch.paths import PathModel

__all__ = ["FantasyModel", "PathModel", "WarmModel"]
