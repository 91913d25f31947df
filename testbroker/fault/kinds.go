package fault

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

const (
	mqtt = hubdata.MQTT
	amqp = hubdata.AMQP
	http = hubdata.HTTP
)

// A row of kinds has the name of a constant and the protocols over which its fault can happen.
type row struct {
	name string
	on   hubdata.Protocol
}

var kinds = map[Kind]row{
	RefuseConnect:    {"RefuseConnect", mqtt | amqp | http},
	SlowConnack:      {"SlowConnack", mqtt | amqp | http},
	SwallowConnack:   {"SwallowConnack", mqtt | amqp | http},
	DropConnect:      {"DropConnect", mqtt | amqp | http},
	ForgetSession:    {"ForgetSession", mqtt},
	GarbageOnConnect: {"GarbageOnConnect", mqtt | amqp},

	DropDuringPublish: {"DropDuringPublish", mqtt | http},
	DropBeforePublish: {"DropBeforePublish", mqtt | amqp | http},
	DropAfterPublish:  {"DropAfterPublish", mqtt | amqp | http},
	DropAfterPuback:   {"DropAfterPuback", mqtt | amqp | http},
	SlowPuback:        {"SlowPuback", mqtt | amqp | http},
	SwallowPuback:     {"SwallowPuback", mqtt | amqp | http},
	Forget:            {"Forget", mqtt | amqp | http},
	StrayPuback:       {"StrayPuback", mqtt},
	DuplicatePuback:   {"DuplicatePuback", mqtt},
	GarbageOnPublish:  {"GarbageOnPublish", mqtt | amqp | http},

	HalfOpen: {"HalfOpen", mqtt | amqp | http},
	Throttle: {"Throttle", mqtt | amqp | http},
	Absent:   {"Absent", mqtt | amqp | http},
	Quota:    {"Quota", mqtt | amqp | http},

	RefuseSubscribe:    {"RefuseSubscribe", mqtt},
	DropOnSubscribe:    {"DropOnSubscribe", mqtt},
	SwallowSuback:      {"SwallowSuback", mqtt},
	SlowSuback:         {"SlowSuback", mqtt},
	LongSuback:         {"LongSuback", mqtt},
	ShortSuback:        {"ShortSuback", mqtt},
	GarbageOnSubscribe: {"GarbageOnSubscribe", mqtt},
	SwallowPingresp:    {"SwallowPingresp", mqtt},

	MuteHandshake:      {"MuteHandshake", mqtt | amqp | http},
	NotTLS:             {"NotTLS", mqtt | amqp | http},
	CutHandshake:       {"CutHandshake", mqtt | amqp | http},
	OldTLS:             {"OldTLS", mqtt | amqp | http},
	ExpiredCertificate: {"ExpiredCertificate", mqtt | amqp | http},

	RefuseAttach:    {"RefuseAttach", amqp},
	SlowAttach:      {"SlowAttach", amqp},
	SwallowAttach:   {"SwallowAttach", amqp},
	DropOnAttach:    {"DropOnAttach", amqp},
	WithholdCredit:  {"WithholdCredit", amqp},
	DetachWhileIdle: {"DetachWhileIdle", amqp},

	RejectMessage:      {"RejectMessage", amqp},
	ReleaseMessage:     {"ReleaseMessage", amqp},
	ModifyMessage:      {"ModifyMessage", amqp},
	CloseOnMessage:     {"CloseOnMessage", amqp},
	EndOnMessage:       {"EndOnMessage", amqp},
	DetachOnMessage:    {"DetachOnMessage", amqp},
	DetachAfterMessage: {"DetachAfterMessage", amqp},

	RefuseSASL:   {"RefuseSASL", amqp},
	RefuseToken:  {"RefuseToken", amqp},
	SlowToken:    {"SlowToken", amqp},
	SwallowToken: {"SwallowToken", amqp},
	DropOnToken:  {"DropOnToken", amqp},

	AnswerStatus:       {"AnswerStatus", http},
	AnswerStatusAfter:  {"AnswerStatusAfter", http},
	ResetBeforeRequest: {"ResetBeforeRequest", http},
	ResetAfterRequest:  {"ResetAfterRequest", http},
	SwallowAnswer:      {"SwallowAnswer", http},
	DropDuringAnswer:   {"DropDuringAnswer", http},
	SlowAnswer:         {"SlowAnswer", http},
	GarbageAnswer:      {"GarbageAnswer", http},
	WrongDate:          {"WrongDate", http},
	NoContentLength:    {"NoContentLength", http},

	DropBeforeTwin: {"DropBeforeTwin", mqtt | amqp},
	RefuseTwin:     {"RefuseTwin", mqtt | amqp},
	DropAfterTwin:  {"DropAfterTwin", mqtt | amqp},
	SwallowTwin:    {"SwallowTwin", mqtt | amqp},
	SlowTwin:       {"SlowTwin", mqtt | amqp},
	MisnameTwin:    {"MisnameTwin", mqtt | amqp},
	DuplicateTwin:  {"DuplicateTwin", mqtt | amqp},
	GarbleTwin:     {"GarbleTwin", mqtt | amqp},

	SwallowDesired:   {"SwallowDesired", mqtt | amqp},
	DuplicateDesired: {"DuplicateDesired", mqtt | amqp},
	SlowDesired:      {"SlowDesired", mqtt | amqp},
	DropAfterDesired: {"DropAfterDesired", mqtt | amqp},

	DropBeforeMethod: {"DropBeforeMethod", mqtt | amqp},
	SwallowMethod:    {"SwallowMethod", mqtt | amqp},
	SlowMethod:       {"SlowMethod", mqtt | amqp},
	DuplicateMethod:  {"DuplicateMethod", mqtt | amqp},
	GarbleMethod:     {"GarbleMethod", mqtt | amqp},
	DropAfterMethod:  {"DropAfterMethod", mqtt | amqp},
	MisnameMethod:    {"MisnameMethod", mqtt | amqp},
	RefuseMethod:     {"RefuseMethod", mqtt | amqp},

	DropOnMethodAnswer:    {"DropOnMethodAnswer", mqtt | amqp},
	SwallowMethodAnswer:   {"SwallowMethodAnswer", mqtt | amqp},
	SlowMethodAnswer:      {"SlowMethodAnswer", mqtt | amqp},
	DropAfterMethodAnswer: {"DropAfterMethodAnswer", mqtt | amqp},

	CutBlobBody:  {"CutBlobBody", http},
	SlowBlob:     {"SlowBlob", http},
	DamageBlob:   {"DamageBlob", http},
	ExpireUpload: {"ExpireUpload", http},
}

// Kinds returns every kind of fault that happens at a hub, in a fixed order, except for those of
// CertificateKinds, BrokerKinds and GatewayKinds.
func Kinds() []Kind { return slices.Sorted(maps.Keys(kinds)) }

// String returns the name of the constant.
func (k Kind) String() string {
	if row, ok := k.row(); ok {
		return row.name
	}
	return fmt.Sprintf("Kind(%d)", uint16(k))
}

// Protocols returns the protocols over which the fault can happen; none for an unknown kind.
func (k Kind) Protocols() hubdata.Protocol {
	row, _ := k.row()
	return row.on
}

func (k Kind) row() (row, bool) {
	for _, other := range []map[Kind]row{provisioningKinds, certificateKinds, brokerKinds, gatewayKinds} {
		if r, ok := other[k]; ok {
			return r, true
		}
	}
	r, ok := kinds[k]
	return r, ok
}
