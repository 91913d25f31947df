package hubdata

// EventSource says why the hub made an event for back ends. It is the value of the annotation
// "iothub-message-source".
type EventSource string

const (
	// Telemetry: a device or module sent a message.
	Telemetry EventSource = "Telemetry"
	// TwinChangeEvents: a twin was changed, by a back end or by its device.
	TwinChangeEvents EventSource = "twinChangeEvents"
	// DeviceLifecycleEvents: a device or module was registered or removed.
	DeviceLifecycleEvents EventSource = "deviceLifecycleEvents"
	// DeviceConnectionStateEvents: a device or module was connected or disconnected, over MQTT or
	// AMQP.
	DeviceConnectionStateEvents EventSource = "deviceConnectionStateEvents"
	// DigitalTwinChangeEvents: the digital twin of a device was changed, by a back end or by its
	// device.
	DigitalTwinChangeEvents EventSource = "digitalTwinChangeEvents"
)
