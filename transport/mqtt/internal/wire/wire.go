// Package wire is what the MQTT engines know of a hub, whatever they speak MQTT with: topics,
// property bags, the user name, and what the codes of MQTT mean. It is of the core: boards link it.
package wire

import (
	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/transport"
)

// Proto is the name in errors.
const Proto = "mqtt"

// MaxTopic is the longest topic, in bytes: [MQTT-4.7.3-3].
const MaxTopic = 65535

// MaxField is the longest text in a CONNECT, in bytes.
const MaxField = 65535

// MaxInfo bounds what goes into the user name, which has 65535 bytes at most when all is
// percent-encoded.
const MaxInfo = 4096

// Topics are an identity's own. Ids stand in them as they are, not percent-encoded.
type Topics struct {
	// Telemetry is what to publish to, with a bag behind it.
	Telemetry string
	// Messages is the filter for cloud-to-device messages.
	Messages string
	// Inbox is what their topics begin with, a bag behind it.
	Inbox string
}

// NewTopics returns the topics of the identity that creds name.
func NewTopics(creds *transport.Credentials) Topics {
	base := "devices/" + creds.DeviceID
	if creds.ModuleID != "" {
		base += "/modules/" + creds.ModuleID
	}
	inbox := base + "/messages/devicebound/"
	return Topics{Telemetry: base + "/messages/events/", Messages: inbox + "#", Inbox: inbox}
}

// apiVersion is the hub's interface that the topics and bags here follow.
const apiVersion = "2021-04-12"

// UserName is the user name of CONNECT. agent is the name that the device gives itself, model the
// Plug and Play model, empty for none.
func UserName(creds *transport.Credentials, agent, model string) string {
	b := append([]byte(creds.Host), '/')
	b = append(b, ClientID(creds)...)
	b = append(b, "/?api-version="+apiVersion+"&DeviceClientType="...)
	b = percent.Append(b, agent)
	if model != "" {
		b = percent.Append(append(b, "&model-id="...), model)
	}
	return string(b)
}

// ClientID is the client id of CONNECT: the device's id, for a module with the module's behind a
// slash.
func ClientID(creds *transport.Credentials) string {
	if creds.ModuleID == "" {
		return creds.DeviceID
	}
	return creds.DeviceID + "/" + creds.ModuleID
}

// Inbound is where cloud-to-device messages are decoded to, one after the other.
type Inbound struct {
	delivery transport.Delivery
	message  transport.Message
	ref      [2]byte
}

// Decode makes a delivery of a PUBLISH: what its topic has behind Topics.Inbox, its payload, its
// packet id (0 with QoS 0) and its DUP. The result is valid until the next call.
func (in *Inbound) Decode(bag string, body []byte, id uint16, dup bool) *transport.Delivery {
	in.message = transport.Message{Body: body, Properties: in.message.Properties[:0]}
	DecodeBag(bag, &in.message)
	in.delivery = transport.Delivery{Kind: transport.Messages, Again: dup, Msg: &in.message}
	if id != 0 {
		in.ref = [2]byte{byte(id >> 8), byte(id)}
		in.delivery.Ref = in.ref[:]
	}
	return &in.delivery
}
