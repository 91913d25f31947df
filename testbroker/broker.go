package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
)

// AuthMethod is the method of enhanced authentication of a plain broker over MQTT 5. The
// authentication data of CONNECT, or of the AUTH that begins a re-authentication, is a key of the
// device or a token signed with one. Without data the broker asks for it with an AUTH.
const AuthMethod = mqttfront.AuthMethod

// Session returns the MQTT session of a device, or of a module named "deviceID/moduleID": that of
// its connection, or a kept one. It returns false when there is none.
func (h *Hub) Session(id string) (hubdata.Session, bool) {
	return h.mqtt.Session(identity.SplitIdentity(id))
}

// BrokerURL returns the URL of a plain broker for a device, or for a module named
// "deviceID/moduleID": scheme and address (host:port) as given, its primary key as the password,
// and its topics as parameters. It is empty for an unknown name, and for a hub that is no plain
// broker.
func (h *Hub) BrokerURL(id, scheme, addr string) string {
	d, err := h.Device(id)
	if err != nil {
		return ""
	}
	return h.mqtt.URL(d, scheme, addr)
}
