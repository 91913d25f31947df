//go:build tinygo

package linked

var mqtt5 bool

// MQTT5 reports whether SetMQTT5 was called.
func MQTT5() bool { return mqtt5 }

// SetMQTT5 is called where a program chooses MQTT 5.
func SetMQTT5() { mqtt5 = true }
