package hub

// AMQP conditions and CONNACK codes of fault messages and of the gateway.
const (
	limitExceeded = "amqp:resource-limit-exceeded"
	Unauthorized  = "amqp:unauthorized-access"

	serverUnavailable = 3
	notAuthorized     = 5
)
