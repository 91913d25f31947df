package hub

// AMQP conditions and CONNACK codes of fault messages and of the gateway.
const (
	connectionForced = "amqp:connection:forced"
	detachForced     = "amqp:link:detach-forced"
	internalError    = "amqp:internal-error"
	limitExceeded    = "amqp:resource-limit-exceeded"
	Unauthorized     = "amqp:unauthorized-access"

	serverUnavailable = 3
	notAuthorized     = 5
)
