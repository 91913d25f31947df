package hubdata

// EventSource says why the hub made an event for back ends. It is the value of the annotation
// "iothub-message-source".
type EventSource string

const (
	// EventSourceTelemetry: a device or module sent a message.
	EventSourceTelemetry EventSource = "Telemetry"
	// EventSourceTwinChange: a twin was changed, by a back end or by its device.
	EventSourceTwinChange EventSource = "twinChangeEvents"
	// EventSourceDeviceLifecycle: a device or module was registered or removed.
	EventSourceDeviceLifecycle EventSource = "deviceLifecycleEvents"
	// EventSourceDeviceConnectionState: a device or module was connected or disconnected, over MQTT or
	// AMQP.
	EventSourceDeviceConnectionState EventSource = "deviceConnectionStateEvents"
	// EventSourceDigitalTwinChange: the digital twin of a device was changed, by a back end or by its
	// device.
	EventSourceDigitalTwinChange EventSource = "digitalTwinChangeEvents"
)
