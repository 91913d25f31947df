package fileupload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Uploads a file of unknown size from a pipe. The connection is cut meanwhile.
func Example() {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("roof-7"); err != nil {
		log.Fatal(err)
	}
	hub.Inject(fault.Fault{Kind: fault.CutBlobBody})

	creds, err := device.ParseConnectionString(hub.ConnectionString("roof-7"))
	if err != nil {
		log.Fatal(err)
	}
	// a program gives nil
	uploader, err := fileupload.New(creds, &fileupload.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortHTTP)}})
	if err != nil {
		log.Fatal(err)
	}
	defer uploader.Close()

	from, to := io.Pipe()
	go func() {
		for day := range 3 {
			fmt.Fprintf(to, "day %d: sunny\n", day+1)
		}
		to.Close()
	}()
	result, err := uploader.Upload(context.Background(), "logs/weather.txt", from, -1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Blob, result.Size, "bytes,", result.Retries, "retry")
	blob, _ := hub.Blob(result.Blob)
	text, _ := blob.Bytes()
	fmt.Print(string(text))
	// Output:
	// roof-7/logs/weather.txt 39 bytes, 1 retry
	// day 1: sunny
	// day 2: sunny
	// day 3: sunny
}

// Bounds an upload by the context, or by a policy for each request.
func ExampleUploader_Upload() {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("roof-7"); err != nil {
		log.Fatal(err)
	}
	hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Statuses: []int{500},
		Times: -1})

	creds, err := device.ParseConnectionString(hub.ConnectionString("roof-7"))
	if err != nil {
		log.Fatal(err)
	}
	uploader, err := fileupload.New(creds, &fileupload.Options{
		Network:     netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortHTTP)},
		RetryPolicy: retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Fixed{Delay: 10 * time.Millisecond}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer uploader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = uploader.Upload(ctx, "a.txt", strings.NewReader("text"), 4)
	fmt.Println(errors.Is(err, transport.RetryExpired), errors.Is(err, retrypolicy.ReasonOutOfAttempts))
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		fmt.Println(status.Service, status.Status, status.Name)
	}
	fmt.Println(hub.Uploads()[0].State)
	// Output:
	// true true
	// storage 500 InternalError
	// failed
}
