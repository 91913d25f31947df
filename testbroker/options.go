package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Options are the settings of a hub. The zero value of each field stands for its default.
type Options = hub.Options

// AMQPOptions are the settings of connections over AMQP. The zero value of each field stands for
// its default.
type AMQPOptions = hub.AMQPOptions

// HTTPOptions are the settings of connections over HTTP. The zero value of each field stands for
// its default.
type HTTPOptions = hub.HTTPOptions

// KnownAPIVersions returns the versions of the service's API that devices are known to ask for.
func KnownAPIVersions() []string { return hub.KnownAPIVersions() }

// UploadOptions are the settings of the upload of files. The zero value of each field stands for
// its default.
type UploadOptions = hub.UploadOptions

// C2DOptions are the settings of the queues of C2D messages. The zero value of each field stands
// for its default.
type C2DOptions = hub.C2DOptions
