"""The API against its own OpenAPI document, with requests made up by schemathesis."""

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi
from schemathesis.transport.serialization import Binary

from caunet.web import create_app
from tests.web.pictures import ASTRONAUT, png

CHECKS = [
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
    openapi.response_headers_conformance,
    openapi.negative_data_rejection,
]


# Files are mostly pictures: bytes of any kind would all be refused in the same way.
FILES = [png(ASTRONAUT[:40, :40]), png(ASTRONAUT[5:40, 10:60]), png(ASTRONAUT[:20, :20], "JPEG"), b"", b"no"]
schemathesis.openapi.format("binary", st.sampled_from(FILES).map(Binary))

schema = schemathesis.openapi.from_dict(create_app().openapi())


@schema.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_it_keeps_to_its_document(case, server):
    case.call_and_validate(base_url=server, checks=CHECKS, timeout=120)
