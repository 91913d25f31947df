// The service client of github.com/amenzhinsky/iothub as a program: "send", or "feedback" and "files", which print what arrives. Its dependencies
// do not fit those of the module interop, which has a newer github.com/Azure/go-amqp.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/amenzhinsky/iothub/iotservice"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	pem, err := os.ReadFile(os.Getenv("HUB_CA"))
	if err != nil {
		return err
	}
	trust := &tls.Config{RootCAs: x509.NewCertPool()}
	trust.RootCAs.AppendCertsFromPEM(pem)
	c, err := iotservice.NewFromConnectionString(os.Getenv("IOTHUB_SERVICE_CONNECTION_STRING"),
		iotservice.WithTLSConfig(trust),
		iotservice.WithHTTPClient(&http.Client{Transport: &http.Transport{TLSClientConfig: trust}}))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	print := func(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }
	switch args[0] {
	case "send": // device, payload
		return c.SendEvent(ctx, args[1], []byte(args[2]), iotservice.WithSendMessageID("m-1"),
			iotservice.WithSendCorrelationID("c-1"), iotservice.WithSendUserID("ann"),
			iotservice.WithSendAck(iotservice.AckFull), iotservice.WithSendProperty("unit", "C"),
			iotservice.WithSendExpiryTime(time.Now().Add(time.Hour)))
	case "feedback":
		return c.SubscribeFeedback(ctx, func(f *iotservice.Feedback) error { return print(f) })
	case "files":
		return c.SubscribeFileNotifications(ctx, func(f *iotservice.FileNotification) error { return print(f) })
	}
	return fmt.Errorf("unknown command %q", args[0])
}
