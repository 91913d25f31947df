// Package nextwire has the wire of the MQTT v5 connection profile: topics, types of messages, the
// user name, limits, and the protobuf messages. The service is a preview: what its next version may
// move stands here. A new version of a message is a new type beside the old one, told apart by the
// number in the user property "type".
//
// Client and test hub share it. Vectors of the specification and an independent client pin it.
package nextwire

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
)

// Profiles of a hub, as provisioning spells them. Compare without case.
const (
	ProfileClassic = "classic"
	ProfileMQTTv5  = "mqttV5"
)

// Features are the last level of a topic.
const (
	FeaturePresence  = "presence"
	FeatureTelemetry = "telemetry"
	FeatureTwin      = "twin"
	FeatureMethods   = "methods"
)

// User properties of MQTT 5.
const (
	PropertyType        = "type"
	PropertyContentType = "content-type"
	PropertyMessageID   = "$.mid"
	PropertyEncoding    = "$.ce"
	PropertyComponent   = "$.sub"
	PropertyCreated     = "$.ctime"
)

// ContentType is the content type of twin and method messages. Receivers do not check it.
const ContentType = "application/protobuf"

// Types are values of the user property "type": NAME:VERSION.
const (
	TypeBirth         = "birth:1"
	TypeBirthAck      = "birth-ack:1"
	TypeTelemetry     = "telemetry:1"
	TypeTwinGet       = "get:1"
	TypeGetResponse   = "get-response:1"
	TypeReportedPatch = "reported-patch:1"
	TypePatchResponse = "reported-patch-response:1"
	TypeTwinPush      = "twin-push:1"
	TypeDesiredPatch  = "desired-patch:1"
	TypeProbe         = "probe:1"
	TypeProbeAck      = "probe-ack:1"
	TypeExec          = "exec:1"
	TypeResult        = "result:1"
	TypeAbandon       = "abandon:1"
)

// IsBirthAck reports whether typ names a birth-ack. Any version or none will do, as for the
// service's own clients.
func IsBirthAck(typ string) bool {
	name, _, _ := strings.Cut(typ, ":")
	return name == "birth-ack"
}

// Limits and times of the service and its own clients.
const (
	StepTimeout          = time.Minute // for the SUBACK, and then for the birth-ack
	DefaultSessionExpiry = time.Hour
	MaxSessionExpiry     = 8 * time.Hour
	QueuedMessages       = 100 // for an absent device; one more destroys its session
	QueuedBytes          = 1 << 20
	MaxTelemetry         = 255_000 // bytes of a body
	MaxMethodName        = 95      // bytes
)

// Up is the topic on which a device publishes for a feature.
func Up(deviceID, feature string) string { return "ih/" + deviceID + "/srv/" + feature }

// Down is the topic on which a device receives messages of a feature.
func Down(deviceID, feature string) string { return "ih/" + deviceID + "/dev/" + feature }

// Filter is the one subscription of a device.
func Filter(deviceID string) string { return Down(deviceID, "#") }

// Reserved reports whether a topic is of the profile or of brokers themselves, and so no custom
// one.
func Reserved(topic string) bool {
	return strings.HasPrefix(topic, "ih/") || strings.HasPrefix(topic, "$")
}

// An ID is a UUID, as Correlation Data has it: the nonce of a connection, or a request.
type ID [16]byte

// ParseID reads Correlation Data.
func ParseID[T string | []byte](b T) (id ID, ok bool) {
	n := copy(id[:], b) // not in the return: it may read id before
	return id, n == len(id) && len(b) == len(id)
}

// NewID makes a UUID of version 4 from 16 random bytes.
func NewID(random ID) ID {
	random[6], random[8] = random[6]&0x0f|0x40, random[8]&0x3f|0x80
	return random
}

const (
	userCorrelation = "correlationId="
	userVersion     = "&clientVersion="
	hexDigits       = "0123456789abcdef"
)

// UserName is the user name of CONNECT. client is a name and version, such as "go/1.2.0".
func UserName(nonce ID, client string) string {
	b := append(make([]byte, 0, len(userCorrelation)+2*len(nonce)+len(userVersion)+len(client)+2), userCorrelation...)
	for _, c := range nonce {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	return string(texts.AppendEscaped(append(b, userVersion...), client))
}

// ParseUserName reads a user name. Digits may have either case.
func ParseUserName(s string) (nonce ID, client string, ok bool) {
	id, version, found := strings.Cut(s, userVersion)
	digits, known := strings.CutPrefix(id, userCorrelation)
	name, plain := texts.AppendUnescaped(nil, version)
	if !found || !known || !plain || len(digits) != 2*len(nonce) {
		return ID{}, "", false
	}
	for i := 0; i < len(nonce); i += 8 {
		half, err := strconv.ParseUint(digits[2*i:2*i+16], 16, 64)
		if err != nil {
			return ID{}, "", false
		}
		binary.BigEndian.PutUint64(nonce[i:], half)
	}
	return nonce, string(name), true
}

// ErrMalformed is the error for bytes that are no message.
var ErrMalformed = errors.New("malformed protobuf message")
