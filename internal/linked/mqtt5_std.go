//go:build !tinygo

package linked

// MQTT5 reports whether SetMQTT5 was called, on boards. Elsewhere it is true.
func MQTT5() bool { return true }

// SetMQTT5 is called where a program chooses MQTT 5.
func SetMQTT5() {}
