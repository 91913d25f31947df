package hub

import (
	"fmt"
	"strings"
)

// Protocol is a set of device protocols.
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

// A faultRow describes a kind of fault.
type faultRow struct {
	name      string
	on        Protocol
	condition string // default AMQP condition; empty = none
	status    int    // default status of HTTP and twins; zero = none
	code      byte   // default code of MQTT and SASL; zero = none
}

// AMQP conditions and CONNACK codes of faults and fault messages.
const (
	connectionForced = "amqp:connection:forced"
	detachForced     = "amqp:link:detach-forced"
	internalError    = "amqp:internal-error"
	limitExceeded    = "amqp:resource-limit-exceeded"
	Unauthorized     = "amqp:unauthorized-access"

	serverUnavailable = 3
	notAuthorized     = 5
)

var faultTable = map[FaultKind]faultRow{
	RefuseConnect: {name: "RefuseConnect", on: MQTT | AMQP | HTTP, condition: connectionForced, status: 503,
		code: serverUnavailable},
	SlowConnack:      {name: "SlowConnack", on: MQTT | AMQP | HTTP},
	NoConnack:        {name: "NoConnack", on: MQTT | AMQP | HTTP},
	DropConnect:      {name: "DropConnect", on: MQTT | AMQP | HTTP},
	ForgetSession:    {name: "ForgetSession", on: MQTT},
	GarbageOnConnect: {name: "GarbageOnConnect", on: MQTT | AMQP},

	DropDuringPublish: {name: "DropDuringPublish", on: MQTT | HTTP},
	DropBeforePublish: {name: "DropBeforePublish", on: MQTT | AMQP | HTTP},
	DropAfterPublish:  {name: "DropAfterPublish", on: MQTT | AMQP | HTTP},
	DropAfterPuback:   {name: "DropAfterPuback", on: MQTT | AMQP | HTTP},
	DelayPuback:       {name: "DelayPuback", on: MQTT | AMQP | HTTP},
	SwallowPuback:     {name: "SwallowPuback", on: MQTT | AMQP | HTTP},
	Forget:            {name: "Forget", on: MQTT | AMQP | HTTP},
	StrayPuback:       {name: "StrayPuback", on: MQTT},
	DuplicatePuback:   {name: "DuplicatePuback", on: MQTT},
	GarbageOnPublish:  {name: "GarbageOnPublish", on: MQTT | AMQP | HTTP},

	HalfOpen: {name: "HalfOpen", on: MQTT | AMQP | HTTP},
	Throttle: {name: "Throttle", on: MQTT | AMQP | HTTP},
	Absent:   {name: "Absent", on: MQTT | AMQP | HTTP},
	Quota:    {name: "Quota", on: MQTT | AMQP | HTTP},

	RefuseSubscribe:    {name: "RefuseSubscribe", on: MQTT, code: 0x80},
	DropOnSubscribe:    {name: "DropOnSubscribe", on: MQTT},
	SwallowSuback:      {name: "SwallowSuback", on: MQTT},
	SlowSuback:         {name: "SlowSuback", on: MQTT},
	LongSuback:         {name: "LongSuback", on: MQTT},
	ShortSuback:        {name: "ShortSuback", on: MQTT},
	GarbageOnSubscribe: {name: "GarbageOnSubscribe", on: MQTT},
	SwallowPingresp:    {name: "SwallowPingresp", on: MQTT},

	MuteHandshake:      {name: "MuteHandshake", on: MQTT | AMQP | HTTP},
	NotTLS:             {name: "NotTLS", on: MQTT | AMQP | HTTP},
	CutHandshake:       {name: "CutHandshake", on: MQTT | AMQP | HTTP},
	OldTLS:             {name: "OldTLS", on: MQTT | AMQP | HTTP},
	ExpiredCertificate: {name: "ExpiredCertificate", on: MQTT | AMQP | HTTP},

	RefuseAttach:    {name: "RefuseAttach", on: AMQP, condition: internalError},
	SlowAttach:      {name: "SlowAttach", on: AMQP},
	NoAttach:        {name: "NoAttach", on: AMQP},
	DropOnAttach:    {name: "DropOnAttach", on: AMQP},
	WithholdCredit:  {name: "WithholdCredit", on: AMQP},
	DetachWhileIdle: {name: "DetachWhileIdle", on: AMQP, condition: detachForced},

	RejectMessage:      {name: "RejectMessage", on: AMQP, condition: internalError},
	ReleaseMessage:     {name: "ReleaseMessage", on: AMQP},
	ModifyMessage:      {name: "ModifyMessage", on: AMQP},
	CloseOnMessage:     {name: "CloseOnMessage", on: AMQP, condition: connectionForced},
	EndOnMessage:       {name: "EndOnMessage", on: AMQP, condition: internalError},
	DetachOnMessage:    {name: "DetachOnMessage", on: AMQP, condition: detachForced},
	DetachAfterMessage: {name: "DetachAfterMessage", on: AMQP, condition: detachForced},

	RefuseSASL:  {name: "RefuseSASL", on: AMQP, code: 1},
	RefuseToken: {name: "RefuseToken", on: AMQP, status: 401},
	SlowToken:   {name: "SlowToken", on: AMQP},
	NoToken:     {name: "NoToken", on: AMQP},
	DropOnToken: {name: "DropOnToken", on: AMQP},

	AnswerStatus:       {name: "AnswerStatus", on: HTTP},
	AnswerStatusAfter:  {name: "AnswerStatusAfter", on: HTTP},
	ResetBeforeRequest: {name: "ResetBeforeRequest", on: HTTP},
	ResetAfterRequest:  {name: "ResetAfterRequest", on: HTTP},
	NoAnswer:           {name: "NoAnswer", on: HTTP},
	DropDuringAnswer:   {name: "DropDuringAnswer", on: HTTP},
	SlowAnswer:         {name: "SlowAnswer", on: HTTP},
	GarbageAnswer:      {name: "GarbageAnswer", on: HTTP},
	WrongDate:          {name: "WrongDate", on: HTTP},
	NoContentLength:    {name: "NoContentLength", on: HTTP},

	DropBeforeTwin: {name: "DropBeforeTwin", on: MQTT | AMQP},
	RefuseTwin:     {name: "RefuseTwin", on: MQTT | AMQP, status: 429},
	DropAfterTwin:  {name: "DropAfterTwin", on: MQTT | AMQP},
	SwallowTwin:    {name: "SwallowTwin", on: MQTT | AMQP},
	SlowTwin:       {name: "SlowTwin", on: MQTT | AMQP},
	MisnameTwin:    {name: "MisnameTwin", on: MQTT | AMQP},
	DuplicateTwin:  {name: "DuplicateTwin", on: MQTT | AMQP},
	GarbleTwin:     {name: "GarbleTwin", on: MQTT | AMQP},

	SwallowDesired:   {name: "SwallowDesired", on: MQTT | AMQP},
	DuplicateDesired: {name: "DuplicateDesired", on: MQTT | AMQP},
	SlowDesired:      {name: "SlowDesired", on: MQTT | AMQP},
	DropAfterDesired: {name: "DropAfterDesired", on: MQTT | AMQP},

	DropBeforeMethod: {name: "DropBeforeMethod", on: MQTT | AMQP},
	SwallowMethod:    {name: "SwallowMethod", on: MQTT | AMQP},
	SlowMethod:       {name: "SlowMethod", on: MQTT | AMQP},
	DuplicateMethod:  {name: "DuplicateMethod", on: MQTT | AMQP},
	GarbleMethod:     {name: "GarbleMethod", on: MQTT | AMQP},
	DropAfterMethod:  {name: "DropAfterMethod", on: MQTT | AMQP},
	MisnameMethod:    {name: "MisnameMethod", on: MQTT | AMQP},
	RefuseMethod:     {name: "RefuseMethod", on: MQTT | AMQP, status: 429},

	DropOnMethodAnswer:    {name: "DropOnMethodAnswer", on: MQTT | AMQP},
	SwallowMethodAnswer:   {name: "SwallowMethodAnswer", on: MQTT | AMQP},
	SlowMethodAnswer:      {name: "SlowMethodAnswer", on: MQTT | AMQP},
	DropAfterMethodAnswer: {name: "DropAfterMethodAnswer", on: MQTT | AMQP},

	CutBlobBody:  {name: "CutBlobBody", on: HTTP},
	SlowBlob:     {name: "SlowBlob", on: HTTP},
	DamageBlob:   {name: "DamageBlob", on: HTTP},
	ExpireUpload: {name: "ExpireUpload", on: HTTP},
}

// Protocols returns the protocols over which the fault can happen.
func (k FaultKind) Protocols() Protocol { return faultTable[k].on }
