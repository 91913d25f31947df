package testbroker

import "github.com/hubline-iot/hubline/testbroker/hubdata"

// EventsConnectionString returns the connection string of the endpoint compatible with Event Hubs,
// for a policy and an address (host:port) of [PortAMQP] or [PortAMQPS]. Clients dial [PortAMQP] if
// plain is true: that form, with UseDevelopmentEmulator, needs no certificate.
func (h *Hub) EventsConnectionString(p hubdata.Policy, addr string, plain bool) string {
	s := "Endpoint=sb://" + addr + "/;SharedAccessKeyName=" + p.Name + ";SharedAccessKey=" + p.PrimaryKey +
		";EntityPath=" + h.hub.Telemetry.Path
	if plain {
		s += ";UseDevelopmentEmulator=true"
	}
	return s
}
