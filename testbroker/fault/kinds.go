package fault

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

const (
	mqtt = hubdata.MQTT
	amqp = hubdata.AMQP
	http = hubdata.HTTP
	all  = mqtt | amqp | http
)

// A row describes a kind.
type row struct {
	name string           // of the constant
	on   hubdata.Protocol // the protocols over which the fault can happen
	uses string           // names of the fields of Fault that it has besides those of its target and time
	zero Fault            // what a zero field means
}

var none Fault

// Defaults of AMQP conditions, CONNACK codes and reason codes.
const (
	connectionForced = "amqp:connection:forced"
	detachForced     = "amqp:link:detach-forced"
	internalError    = "amqp:internal-error"

	serverUnavailable = 3

	reasonNotAuthorized = 0x87
	reasonShuttingDown  = 0x8b
	reasonQuota         = 0x97
)

var kinds = map[Kind]row{
	RefuseConnect: {"RefuseConnect", all, "Code Condition ServerReference Description Status ErrorCode RetryAfter " +
		"RetryAfterDate", Fault{Condition: connectionForced, Status: 503, Code: serverUnavailable}},
	SlowConnack:      {"SlowConnack", all, "Delay", none},
	SwallowConnack:   {"SwallowConnack", all, "", none},
	DropConnect:      {"DropConnect", all, "", none},
	ForgetSession:    {"ForgetSession", mqtt, "", none},
	GarbageOnConnect: {"GarbageOnConnect", mqtt | amqp, "Bytes", none},

	DropDuringPublish: {"DropDuringPublish", mqtt | http, "", none},
	DropBeforePublish: {"DropBeforePublish", all, "", none},
	DropAfterPublish:  {"DropAfterPublish", all, "", none},
	DropAfterPuback:   {"DropAfterPuback", all, "", none},
	SlowPuback:        {"SlowPuback", all, "Delay", none},
	SwallowPuback:     {"SwallowPuback", all, "", none},
	Forget:            {"Forget", all, "", none},
	StrayPuback:       {"StrayPuback", mqtt, "", none},
	DuplicatePuback:   {"DuplicatePuback", mqtt, "", none},
	GarbageOnPublish:  {"GarbageOnPublish", all, "Bytes", none},

	HalfOpen: {"HalfOpen", all, "", none},
	Throttle: {"Throttle", all, "RetryAfterDate Route Rate Limit", Fault{Rate: 1, Limit: 100}},
	Absent:   {"Absent", all, "", none},
	Quota:    {"Quota", all, "Limit AcceptConnects", Fault{Limit: 100}},

	RefuseSubscribe:    {"RefuseSubscribe", mqtt, "Code Description", Fault{Code: 0x80}},
	DropOnSubscribe:    {"DropOnSubscribe", mqtt, "", none},
	SwallowSuback:      {"SwallowSuback", mqtt, "", none},
	SlowSuback:         {"SlowSuback", mqtt, "Delay", none},
	LongSuback:         {"LongSuback", mqtt, "", none},
	ShortSuback:        {"ShortSuback", mqtt, "", none},
	GarbageOnSubscribe: {"GarbageOnSubscribe", mqtt, "Bytes", none},
	SwallowPingresp:    {"SwallowPingresp", mqtt, "", none},

	MuteHandshake:      {"MuteHandshake", all, "", none},
	NotTLS:             {"NotTLS", all, "", none},
	CutHandshake:       {"CutHandshake", all, "", none},
	OldTLS:             {"OldTLS", all, "", none},
	ExpiredCertificate: {"ExpiredCertificate", all, "", none},

	RefuseAttach:   {"RefuseAttach", amqp, "Condition Description Link", Fault{Condition: internalError}},
	SlowAttach:     {"SlowAttach", amqp, "Link Delay", none},
	SwallowAttach:  {"SwallowAttach", amqp, "Link", none},
	DropOnAttach:   {"DropOnAttach", amqp, "Link", none},
	WithholdCredit: {"WithholdCredit", amqp, "Link Delay", none},
	DetachWhileIdle: {"DetachWhileIdle", amqp, "Condition Description Link Unclosed Delay",
		Fault{Condition: detachForced}},

	RejectMessage:   {"RejectMessage", amqp, "Condition Description Link", Fault{Condition: internalError}},
	ReleaseMessage:  {"ReleaseMessage", amqp, "Link", none},
	ModifyMessage:   {"ModifyMessage", amqp, "Link UndeliverableHere", none},
	CloseOnMessage:  {"CloseOnMessage", amqp, "Condition Description Link", Fault{Condition: connectionForced}},
	EndOnMessage:    {"EndOnMessage", amqp, "Condition Description Link", Fault{Condition: internalError}},
	DetachOnMessage: {"DetachOnMessage", amqp, "Condition Description Link Unclosed", Fault{Condition: detachForced}},
	DetachAfterMessage: {"DetachAfterMessage", amqp, "Condition Description Link Unclosed",
		Fault{Condition: detachForced}},

	RefuseSASL:   {"RefuseSASL", amqp, "Code", Fault{Code: 1}},
	RefuseToken:  {"RefuseToken", amqp, "Status", Fault{Status: 401}},
	SlowToken:    {"SlowToken", amqp, "Delay", none},
	SwallowToken: {"SwallowToken", amqp, "", none},
	DropOnToken:  {"DropOnToken", amqp, "", none},

	AnswerStatus: {"AnswerStatus", http, "Description Statuses ErrorCode RetryAfter RetryAfterDate Route Blob",
		Fault{Statuses: []int{503}}},
	AnswerStatusAfter: {"AnswerStatusAfter", http, "Description Statuses ErrorCode RetryAfter RetryAfterDate Route Blob",
		Fault{Statuses: []int{503}}},
	ResetBeforeRequest: {"ResetBeforeRequest", http, "Route Blob", none},
	ResetAfterRequest:  {"ResetAfterRequest", http, "Route Blob", none},
	SwallowAnswer:      {"SwallowAnswer", http, "Route Blob", none},
	DropDuringAnswer:   {"DropDuringAnswer", http, "Route Blob", none},
	SlowAnswer:         {"SlowAnswer", http, "Route Blob Delay", none},
	GarbageAnswer:      {"GarbageAnswer", http, "Route Blob Bytes", none},
	WrongDate:          {"WrongDate", http, "Route Blob Skew", none},
	NoContentLength:    {"NoContentLength", http, "Route Blob", none},

	DropBeforeTwin: {"DropBeforeTwin", mqtt | amqp, "Operation", none},
	RefuseTwin:     {"RefuseTwin", mqtt | amqp, "Description Status ErrorCode RetryAfter Operation", Fault{Status: 429}},
	DropAfterTwin:  {"DropAfterTwin", mqtt | amqp, "Operation", none},
	SwallowTwin:    {"SwallowTwin", mqtt | amqp, "Operation", none},
	SlowTwin:       {"SlowTwin", mqtt | amqp, "Operation Delay", none},
	MisnameTwin:    {"MisnameTwin", mqtt | amqp, "Operation", none},
	DuplicateTwin:  {"DuplicateTwin", mqtt | amqp, "Operation", none},
	GarbleTwin:     {"GarbleTwin", mqtt | amqp, "Operation Bytes", none},

	SwallowDesired:   {"SwallowDesired", mqtt | amqp, "", none},
	DuplicateDesired: {"DuplicateDesired", mqtt | amqp, "", none},
	SlowDesired:      {"SlowDesired", mqtt | amqp, "Delay", none},
	DropAfterDesired: {"DropAfterDesired", mqtt | amqp, "", none},

	DropBeforeMethod: {"DropBeforeMethod", mqtt | amqp, "Method", none},
	SwallowMethod:    {"SwallowMethod", mqtt | amqp, "Method", none},
	SlowMethod:       {"SlowMethod", mqtt | amqp, "Method Delay", none},
	DuplicateMethod:  {"DuplicateMethod", mqtt | amqp, "Method", none},
	GarbleMethod:     {"GarbleMethod", mqtt | amqp, "Method Bytes", none},
	DropAfterMethod:  {"DropAfterMethod", mqtt | amqp, "Method", none},
	MisnameMethod:    {"MisnameMethod", mqtt | amqp, "Method", none},
	RefuseMethod:     {"RefuseMethod", mqtt | amqp, "Description Status ErrorCode Method", Fault{Status: 429}},

	DropOnMethodAnswer:    {"DropOnMethodAnswer", mqtt | amqp, "Method", none},
	SwallowMethodAnswer:   {"SwallowMethodAnswer", mqtt | amqp, "Method", none},
	SlowMethodAnswer:      {"SlowMethodAnswer", mqtt | amqp, "Method Delay", none},
	DropAfterMethodAnswer: {"DropAfterMethodAnswer", mqtt | amqp, "Method", none},

	CutBlobBody:  {"CutBlobBody", http, "Route Blob", none},
	SlowBlob:     {"SlowBlob", http, "Route Blob Delay", none},
	DamageBlob:   {"DamageBlob", http, "Route Blob", none},
	ExpireUpload: {"ExpireUpload", http, "Blob", none},
}

// Kinds returns every kind of fault that happens at a hub, in a fixed order, except for those of
// CertificateKinds, BrokerKinds, GatewayKinds and MQTTv5Kinds.
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

// Fields returns the names of the fields of Fault that a kind uses. Kind, Device, After and For are
// for all kinds.
func (k Kind) Fields() []string {
	row, _ := k.row()
	names := strings.Fields(row.uses)
	if !k.Lasts() {
		names = append(names, "Times", "Probability")
	}
	return names
}

// Resolved returns the fault with the defaults of its kind in place of zero fields.
func (f Fault) Resolved() Fault {
	row, _ := f.Kind.row()
	zero := row.zero
	f.Statuses = slices.Clone(f.Statuses)
	if f.Statuses == nil {
		f.Statuses = zero.Statuses
	}
	f.Times = cmp.Or(f.Times, len(f.Statuses), 1)
	f.Condition = cmp.Or(f.Condition, zero.Condition)
	f.Status = cmp.Or(f.Status, zero.Status)
	f.Code = cmp.Or(f.Code, zero.Code)
	f.Rate = cmp.Or(f.Rate, zero.Rate)
	f.Limit = max(cmp.Or(f.Limit, zero.Limit), 0) // negative: none
	f.Text = cmp.Or(f.Text, zero.Text)
	f.Bytes = slices.Clone(f.Bytes)
	return f
}

func (k Kind) row() (row, bool) {
	for _, other := range []map[Kind]row{provisioningKinds, certificateKinds, brokerKinds, gatewayKinds, mqttv5Kinds,
		updateKinds} {
		if r, ok := other[k]; ok {
			return r, true
		}
	}
	r, ok := kinds[k]
	return r, ok
}
