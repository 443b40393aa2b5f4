"""Runs one scenario with Hetzner's own client against the stand-in."""

import os
import sys

from hcloud import APIException, Client
from hcloud.actions import ActionFailedException
from hcloud.networks import NetworkRoute

ENDPOINT = os.environ["HCLOUD_ENDPOINT"]


def client(token=os.environ["HCLOUD_TOKEN"]):
    # Actions take 50 ms in the tests that use this.
    return Client(token=token, api_endpoint=ENDPOINT, poll_interval=0.02, timeout=300)


def refused(code, call, *args, **kwargs):
    """Returns the error of a call that must fail with this code."""
    try:
        call(*args, **kwargs)
    except APIException as error:
        assert error.code == code, f"{error.code}: {error.message} instead of {code}"
        return error
    raise AssertionError(f"the call did not fail with {code}")


def default_via(gateway):
    return NetworkRoute(destination="0.0.0.0/0", gateway=gateway)


def read():
    api = client()
    assert [n.name for n in api.networks.get_all()] == ["cluster", "storage"]
    network = api.networks.get_by_name("cluster")
    assert network.ip_range == "10.0.0.0/16" and network.routes == []
    assert {s.type for s in network.subnets} == {"cloud", "vswitch"}
    assert network.subnets[0].gateway == "10.0.0.1"
    assert network.created is not None and network.protection == {"delete": False}
    assert {s.name for s in network.servers} == {"gateway", "private"}  # each is fetched by its ID
    assert api.networks.get_by_name("cluste") is None
    assert [n.name for n in api.networks.get_all(label_selector="tier in (data)")] == ["storage"]

    gateway = api.servers.get_by_id(4711)
    assert gateway.status == "running" and gateway.public_net.ipv4.ip == "203.0.113.9"
    assert {(n.network.name, n.ip) for n in gateway.private_net} == {("cluster", "10.0.0.2"), ("storage", "10.1.0.2")}
    assert gateway.location.network_zone == "eu-central" and gateway.server_type.name == "cpx11"
    private = api.servers.get_by_name("private")
    assert private.public_net.ipv4 is None and len(private.private_net) == 1
    assert [s.name for s in api.servers.get_all(label_selector="role=gateway")] == ["gateway"]
    ips = {ip.name: ip for ip in api.floating_ips.get_all()}
    assert (ips["six"].type, ips["six"].ip) == ("ipv6", "2001:db8:7::/64")
    (egress,) = api.floating_ips.get_all(label_selector="pool==egress")
    assert egress.server.name == "gateway"


def routes():
    network = client().networks.get_by_name("cluster")
    for gateway in ["10.0.0.2", "10.0.0.3"]:
        action = network.add_route(default_via(gateway))
        assert (action.command, action.status, action.finished) == ("add_route", "running", None)
        action.wait_until_finished()
        assert action.status == "success" and action.progress == 100 and action.finished >= action.started
        network.reload()
        assert network.routes == [default_via(gateway)]
        network.delete_route(default_via(gateway)).wait_until_finished()
        network.reload()
        assert network.routes == []


def errors():
    api = client()
    network = api.networks.get_by_name("cluster")
    assert "404" not in str(refused("not_found", api.networks.get_by_id, 999).code)
    refused("not_found", network.delete_route, default_via("10.0.0.2"))
    error = refused("invalid_input", network.add_route, default_via("192.168.0.1"))
    assert error.message == "network route gateway not part of the network IP range (10.0.0.0/16)"
    refused("invalid_input", network.add_route, default_via("10.0.0.1"))
    error = refused("invalid_input", network.add_route, NetworkRoute("8.8.8.0/24", "10.0.0.2"))
    assert error.details["fields"][0]["name"] == "destination"
    refused("unauthorized", client("nonsense").networks.get_all)
    refused("deprecated_api_endpoint", api.actions.get_all)
    # The second change conflicts with the first; the client retries it.
    network.add_route(default_via("10.0.0.2"))
    network.delete_route(default_via("10.0.0.2")).wait_until_finished()


def failed_action():
    network = client().networks.get_by_name("cluster")
    action = network.add_route(default_via("10.0.0.2"))
    try:
        action.wait_until_finished()
    except ActionFailedException as error:
        assert error.action.error == {"code": "action_failed", "message": "Action failed"}
        return
    raise AssertionError("the action did not fail")


def pages():
    api = client()
    servers = api.servers.get_all()
    assert [s.name for s in servers] == [f"n{n:03}" for n in range(120)]
    assert len(api.servers.get_all(label_selector="zone!=odd")) == 60
    first = api.servers.get_list()
    assert len(first.servers) == 25
    pagination = first.meta.pagination
    assert (pagination.page, pagination.per_page, pagination.previous_page) == (1, 25, None)
    assert (pagination.next_page, pagination.last_page, pagination.total_entries) == (2, 5, 120)


def readonly():
    api = client(os.environ["HCLOUD_READONLY_TOKEN"])
    network = api.networks.get_by_name("cluster")
    refused("token_readonly", network.add_route, default_via("10.0.0.2"))


if __name__ == "__main__":
    scenarios = [read, routes, errors, failed_action, pages, readonly]
    {scenario.__name__: scenario for scenario in scenarios}[sys.argv[1]]()
