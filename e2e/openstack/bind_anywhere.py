"""An ML2 mechanism driver that binds every port on every host, and is all that stands in for an L2 agent here.

Without one Neutron binds nothing, and a server's boot ends with that. Routers, routes, revisions, policies, quotas and
paging are none of its business.
"""
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class BindAnywhere(api.MechanismDriver):

    def initialize(self):
        pass

    def bind_port(self, context):
        segment = context.segments_to_bind[0]
        details = {portbindings.CAP_PORT_FILTER: True}
        context.set_binding(segment[api.ID], portbindings.VIF_TYPE_OVS, details, status=constants.PORT_STATUS_ACTIVE)
