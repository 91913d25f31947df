// Package linked has marks that optional parts of a board's program set when they are used. Code
// that only those parts need is protected by such a mark. The compiler for boards sees the whole
// program, so it knows when nothing sets the mark of a part, and drops the code. Elsewhere all
// marks are set from the beginning.
package linked

// Where all is true, nothing writes them, so that goroutines may read them.
var hub, inputs, mqtt5, results = all, all, all, all

// Hub reports whether SetHub was called.
func Hub() bool { return hub }

// SetHub is called where a program chooses the dialect of a hub that has all: messages may have
// System.
func SetHub() {
	if !all {
		hub = true
	}
}

// Inputs reports whether SetInputs was called.
func Inputs() bool { return inputs }

// SetInputs is called where a program handles inputs of a module.
func SetInputs() {
	if !all {
		inputs = true
	}
}

// MQTT5 reports whether SetMQTT5 was called.
func MQTT5() bool { return mqtt5 }

// SetMQTT5 is called where a program chooses MQTT 5.
func SetMQTT5() {
	if !all {
		mqtt5 = true
	}
}

// Results reports whether SetResults was called.
func Results() bool { return results }

// SetResults is called where a program watches the results of messages.
func SetResults() {
	if !all {
		results = true
	}
}
