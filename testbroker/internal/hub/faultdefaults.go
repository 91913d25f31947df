package hub

import "github.com/hubline-iot/hubline/testbroker/fault"

// AMQP conditions, CONNACK codes and reason codes of MQTT 5 of faults and fault messages.
const (
	connectionForced = "amqp:connection:forced"
	detachForced     = "amqp:link:detach-forced"
	internalError    = "amqp:internal-error"
	limitExceeded    = "amqp:resource-limit-exceeded"
	Unauthorized     = "amqp:unauthorized-access"

	serverUnavailable = 3
	notAuthorized     = 5

	reasonNotAuthorized = 0x87
	reasonShuttingDown  = 0x8b
	reasonQuota         = 0x97
)

// A faultDefault holds the defaults of a kind of fault.
type faultDefault struct {
	condition string // AMQP condition
	status    int    // of HTTP, tokens, twins and methods
	code      byte   // of MQTT and SASL
}

var faultDefaults = map[fault.Kind]faultDefault{
	fault.RefuseConnect:      {condition: connectionForced, status: 503, code: serverUnavailable},
	fault.RefuseSubscribe:    {code: 0x80},
	fault.RefuseAttach:       {condition: internalError},
	fault.DetachWhileIdle:    {condition: detachForced},
	fault.RejectMessage:      {condition: internalError},
	fault.CloseOnMessage:     {condition: connectionForced},
	fault.EndOnMessage:       {condition: internalError},
	fault.DetachOnMessage:    {condition: detachForced},
	fault.DetachAfterMessage: {condition: detachForced},
	fault.RefuseSASL:         {code: 1},
	fault.RefuseToken:        {status: 401},
	fault.RefuseTwin:         {status: 429},
	fault.RefuseMethod:       {status: 429},
	fault.RefuseProvisioning: {status: 429},
	fault.RefuseCertificate:  {status: 429},

	fault.DisconnectWhileIdle: {code: reasonShuttingDown},
	fault.DisconnectOnPublish: {code: reasonShuttingDown},
	fault.RefusePublish:       {code: reasonQuota},
	fault.RefuseAuth:          {code: reasonNotAuthorized},
}
