//go:build tinygo && !provisioning && !update && !bootloader

package main

import (
	"context"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// home is the hub that the image names.
type home struct {
	dial engine.Dial
	wrap func(transport.Transport) transport.Transport
}

func newHome(modem *board.Modem, _ func(context.Context, []byte) ([]byte, error)) home {
	return home{dial: modem.Dial}
}
