package testbroker

import (
	"fmt"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Protocol is a set of protocols that devices speak.
type Protocol uint8

// The protocols.
const (
	MQTT Protocol = 1 << iota
	AMQP
	HTTP
)

var protocolNames = [...]string{"MQTT", "AMQP", "HTTP"}

// String names the protocols.
func (p Protocol) String() string {
	var names []string
	for i, name := range protocolNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	switch n := len(names); {
	case n == 0, p>>len(protocolNames) != 0:
		return fmt.Sprintf("Protocol(%d)", uint8(p))
	case n == 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

// A faultRow is what there is to know of a kind.
type faultRow struct {
	name      string
	on        Protocol
	condition wire.Symbol // the default; empty = the kind has none
}

var faultTable = map[FaultKind]faultRow{
	RefuseConnect:    {"RefuseConnect", MQTT | AMQP, wire.ConnectionForced},
	SlowConnack:      {name: "SlowConnack", on: MQTT | AMQP},
	NoConnack:        {name: "NoConnack", on: MQTT | AMQP},
	DropConnect:      {name: "DropConnect", on: MQTT | AMQP},
	ForgetSession:    {name: "ForgetSession", on: MQTT},
	GarbageOnConnect: {name: "GarbageOnConnect", on: MQTT | AMQP},

	DropDuringPublish: {name: "DropDuringPublish", on: MQTT},
	DropBeforePublish: {name: "DropBeforePublish", on: MQTT | AMQP},
	DropAfterPublish:  {name: "DropAfterPublish", on: MQTT | AMQP},
	DropAfterPuback:   {name: "DropAfterPuback", on: MQTT | AMQP},
	DelayPuback:       {name: "DelayPuback", on: MQTT | AMQP},
	SwallowPuback:     {name: "SwallowPuback", on: MQTT | AMQP},
	Forget:            {name: "Forget", on: MQTT | AMQP},
	StrayPuback:       {name: "StrayPuback", on: MQTT},
	DuplicatePuback:   {name: "DuplicatePuback", on: MQTT},
	GarbageOnPublish:  {name: "GarbageOnPublish", on: MQTT | AMQP},

	HalfOpen: {name: "HalfOpen", on: MQTT | AMQP},
	Throttle: {name: "Throttle", on: MQTT | AMQP},
	Absent:   {name: "Absent", on: MQTT | AMQP},
	Quota:    {name: "Quota", on: MQTT | AMQP},

	RefuseSubscribe:    {name: "RefuseSubscribe", on: MQTT},
	DropOnSubscribe:    {name: "DropOnSubscribe", on: MQTT},
	SwallowSuback:      {name: "SwallowSuback", on: MQTT},
	SlowSuback:         {name: "SlowSuback", on: MQTT},
	LongSuback:         {name: "LongSuback", on: MQTT},
	ShortSuback:        {name: "ShortSuback", on: MQTT},
	GarbageOnSubscribe: {name: "GarbageOnSubscribe", on: MQTT},
	SwallowPingresp:    {name: "SwallowPingresp", on: MQTT},

	MuteHandshake:      {name: "MuteHandshake", on: MQTT | AMQP},
	NotTLS:             {name: "NotTLS", on: MQTT | AMQP},
	CutHandshake:       {name: "CutHandshake", on: MQTT | AMQP},
	OldTLS:             {name: "OldTLS", on: MQTT | AMQP},
	ExpiredCertificate: {name: "ExpiredCertificate", on: MQTT | AMQP},

	RefuseAttach:    {"RefuseAttach", AMQP, wire.InternalError},
	SlowAttach:      {name: "SlowAttach", on: AMQP},
	NoAttach:        {name: "NoAttach", on: AMQP},
	DropOnAttach:    {name: "DropOnAttach", on: AMQP},
	WithholdCredit:  {name: "WithholdCredit", on: AMQP},
	DetachWhileIdle: {"DetachWhileIdle", AMQP, wire.DetachForced},

	RejectMessage:      {"RejectMessage", AMQP, wire.InternalError},
	ReleaseMessage:     {name: "ReleaseMessage", on: AMQP},
	ModifyMessage:      {name: "ModifyMessage", on: AMQP},
	CloseOnMessage:     {"CloseOnMessage", AMQP, wire.ConnectionForced},
	EndOnMessage:       {"EndOnMessage", AMQP, wire.InternalError},
	DetachOnMessage:    {"DetachOnMessage", AMQP, wire.DetachForced},
	DetachAfterMessage: {"DetachAfterMessage", AMQP, wire.DetachForced},

	RefuseSASL:  {name: "RefuseSASL", on: AMQP},
	RefuseToken: {name: "RefuseToken", on: AMQP},
	SlowToken:   {name: "SlowToken", on: AMQP},
	NoToken:     {name: "NoToken", on: AMQP},
	DropOnToken: {name: "DropOnToken", on: AMQP},
}

// Protocols says over which protocols the fault can happen.
func (k FaultKind) Protocols() Protocol { return faultTable[k].on }
