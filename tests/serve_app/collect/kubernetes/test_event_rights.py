"""The shipped role grants exactly the rights that the watch of Events uses."""

from pathlib import Path

import yaml

FILE = Path(__file__).parents[4] / "deploy" / "kubernetes" / "events.yaml"


def test_the_role_may_read_events_and_nothing_else() -> None:
    account, role, binding = yaml.safe_load_all(FILE.read_text(encoding="utf-8"))
    assert (account["kind"], role["kind"], binding["kind"]) == ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]}]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role["metadata"]["name"],
    }
    assert [subject["name"] for subject in binding["subjects"]] == [account["metadata"]["name"]]
