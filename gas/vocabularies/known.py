"""The vocabularies that gas knows, in the order in which they are asked.

KubeShare's is the last one. Its pods are known by annotations, which can be edited; those of the others by what
containers request. So a bound pod of another vocabulary does not become one of KubeShare's.
"""

from gas.vocabularies.aliyun.vocabulary import ALIYUN
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.vendor.vocabulary import VENDOR

KNOWN: tuple[Vocabulary, ...] = (INTEL, ALIYUN, KOORDINATOR, VENDOR, KUBESHARE)
"""All vocabularies, with the defaults of their flags. The first is the default of ``--vocabularies``."""

DEFAULT = Vocabularies(KNOWN[:1])
