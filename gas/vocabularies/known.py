"""The vocabularies that gas knows, in the order in which they are asked.

KubeShare's is the last one. Its pods are known by annotations, which can be edited; those of the others by what
containers request. So a bound pod of another vocabulary does not become one of KubeShare's.
"""

from collections.abc import Iterable

from gas.vocabularies.aliyun.vocabulary import ALIYUN
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.foreign import FOREIGN
from gas.vocabularies.hami.vocabulary import HAMI
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.vendor.vocabulary import VENDOR

KNOWN: tuple[Vocabulary, ...] = (INTEL, ALIYUN, KOORDINATOR, HAMI, VENDOR, KUBESHARE)
"""All vocabularies, with the defaults of their flags. The first is the default of ``--vocabularies``."""

DEFAULT = Vocabularies(KNOWN[:1])

EVERY = Vocabularies((*KNOWN, FOREIGN))  # in which pods may hold cards, whatever is switched on


def switched_off(selected: Iterable[Vocabulary]) -> Vocabularies:
    """Return the vocabularies in which running pods may have been given cards before they were switched off.

    Those with flags of their own are left out: what amounts mean depends on flags that may be lost as well.
    """
    names = {each.name for each in selected}
    return Vocabularies((*(each for each in KNOWN if each.name not in names and each.flags is None), FOREIGN))
