package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Options are the settings of a hub. The zero value of each field means its default.
type Options = hub.Options

// AMQPOptions are the settings of AMQP connections. The zero value of each field means its default.
type AMQPOptions = hub.AMQPOptions

// HTTPOptions are the settings of HTTP connections. The zero value of each field means its default.
type HTTPOptions = hub.HTTPOptions

// KnownAPIVersions returns the API versions that known devices request.
func KnownAPIVersions() []string { return hub.KnownAPIVersions() }

// UploadOptions are the settings of file uploads. The zero value of each field means its default.
type UploadOptions = hub.UploadOptions

// C2DOptions are the settings of the C2D queues. The zero value of each field means its default.
type C2DOptions = hub.C2DOptions
