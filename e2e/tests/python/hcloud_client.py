"""Drives the Hetzner stand-in with Hetzner's own client; one scenario a run, asserted here."""

import os
import sys

from hcloud import APIException, Client
from hcloud.actions import ActionFailedException
from hcloud.networks import NetworkRoute

ENDPOINT = os.environ["HCLOUD_ENDPOINT"]


def client(token=os.environ["HCLOUD_TOKEN"]):
    # Actions take 50 ms in the tests that use this.
    return Client(token=token, api_endpoint=ENDPOINT, poll_interval=0.02, timeout=20)


def refused(code, call, *args, **kwargs):
    """The call has to fail with that code; returns what the client knows of it."""
    try:
        call(*args, **kwargs)
    except APIException as error:
        assert error.code == code, f"{error.code}: {error.message} instead of {code}"
        return error
    raise AssertionError(f"was not refused with {code}")


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
    assert [s.name for s in api.servers.get_all(label_selector="role=gateway", status=["running"])] == ["gateway"]


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
    assert [a.command for a in network.get_actions(sort=["id"])] == ["add_route", "delete_route"] * 2


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
    network.change_protection(delete=True).wait_until_finished()
    refused("protected", network.delete)
    refused("unauthorized", client("nonsense").networks.get_all)
    refused("deprecated_api_endpoint", api.actions.get_all)
    # Networks conflict: the client itself retries, so a second change succeeds in the end.
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


def retries():
    api = client()
    api.networks.get_by_name("cluster").add_route(default_via("10.0.0.2")).wait_until_finished()
    refused("locked", api.servers.get_by_id(4711).power_off)


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


def floating_ips():
    api = client()
    ips = {ip.name: ip for ip in api.floating_ips.get_all()}
    assert (ips["six"].type, ips["six"].ip) == ("ipv6", "2001:db8:7::/64")
    (egress,) = api.floating_ips.get_all(label_selector="pool==egress")
    assert egress.server is None
    gateway, private = api.servers.get_by_id(4711), api.servers.get_by_name("private")
    egress.assign(gateway).wait_until_finished()
    egress.reload()
    assert egress.server.name == "gateway"
    gateway.reload()
    assert [ip.name for ip in gateway.public_net.floating_ips] == ["egress"]
    refused("floating_ip_assigned", egress.assign, gateway)
    egress.assign(private).wait_until_finished()
    egress.unassign().wait_until_finished()
    egress.reload()
    assert egress.server is None


def members():
    api = client()
    cluster, storage = (api.networks.get_by_name(name) for name in ["cluster", "storage"])
    private = api.servers.get_by_name("private")
    refused("server_already_attached", private.attach_to_network, cluster)
    private.attach_to_network(storage, ip="10.1.0.7").wait_until_finished()
    private.change_alias_ips(storage, ["10.1.0.8"]).wait_until_finished()
    private.reload()
    net = private.private_net_for(storage)
    assert (net.ip, net.alias_ips) == ("10.1.0.7", ["10.1.0.8"])
    private.detach_from_network(storage).wait_until_finished()
    private.power_off().wait_until_finished()
    private.reload()
    assert private.status == "off" and len(private.private_net) == 1
    private.power_on().wait_until_finished()


def readonly():
    api = client(os.environ["HCLOUD_READONLY_TOKEN"])
    network = api.networks.get_by_name("cluster")
    refused("token_readonly", network.add_route, default_via("10.0.0.2"))
    refused("token_readonly", network.delete)


if __name__ == "__main__":
    scenarios = [read, routes, errors, failed_action, retries, pages, floating_ips, members, readonly]
    {scenario.__name__: scenario for scenario in scenarios}[sys.argv[1]]()
