// Package wire has the hub's MQTT conventions that all MQTT engines share: topics, property bags,
// the user name, and the meaning of MQTT's codes. Boards link it.
package wire

import (
	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/transport"
)

// Proto is the protocol's name in errors.
const Proto = "mqtt"

// MaxTopic is the longest topic, in bytes: [MQTT-4.7.3-3].
const MaxTopic = 65535

// MaxField is the longest text in a CONNECT, in bytes.
const MaxField = 65535

// MaxInfo bounds each text inside the user name, which must not exceed 65535 bytes when all is
// percent-encoded.
const MaxInfo = 4096

// Topics are the topics of one identity. Ids stand in them unencoded.
type Topics struct {
	// Telemetry is the topic to publish to, followed by a bag.
	Telemetry string
	// Messages is the topic filter for cloud-to-device messages.
	Messages string
	// Inbox is the prefix of their topics, followed by a bag.
	Inbox string
}

// NewTopics returns the topics of the identity in creds.
func NewTopics(creds *transport.Credentials) Topics {
	base := "devices/" + creds.DeviceID
	if creds.ModuleID != "" {
		base += "/modules/" + creds.ModuleID
	}
	inbox := base + "/messages/devicebound/"
	return Topics{Telemetry: base + "/messages/events/", Messages: inbox + "#", Inbox: inbox}
}

// APIVersion is the version of the service's API that the topics and bags here follow.
const APIVersion = "2021-04-12"

// UserName returns the user name of CONNECT. version is that of the service's API, agent the client
// name that the device announces, model the Plug and Play model, empty for none.
func UserName(creds *transport.Credentials, version, agent, model string) string {
	b := append([]byte(creds.Host), '/')
	b = append(b, ClientID(creds)...)
	b = append(append(b, "/?api-version="...), version...)
	b = append(b, "&DeviceClientType="...)
	b = percent.Append(b, agent)
	if model != "" {
		b = percent.Append(append(b, "&model-id="...), model)
	}
	return string(b)
}

// ClientID returns the client id of CONNECT: the device id, and for a module a slash and the module
// id.
func ClientID(creds *transport.Credentials) string {
	if creds.ModuleID == "" {
		return creds.DeviceID
	}
	return creds.DeviceID + "/" + creds.ModuleID
}

// Inbound is reusable memory into which deliveries are decoded, one after the other.
type Inbound struct {
	delivery transport.Delivery
	message  transport.Message
	ref      [2]byte
}

// Decode returns the delivery for a PUBLISH: its topic behind Topics.Inbox, its payload, its packet
// id (0 with QoS 0) and its DUP. The result is valid until the next call.
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
