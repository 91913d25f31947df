// Package compat has the retry policies of other libraries, for programs that migrate from them or
// must behave like them. Each computes what the library's code computes, and is tested with the
// library's published test vectors where there are any.
//
//	type or function      library
//	Cenkalti, CenkaltiV4  github.com/cenkalti/backoff
//	Failsafe              github.com/failsafe-go/failsafe-go
//	FetchRetry            fetch-retry, for JavaScript
//	Polly                 Polly v8, for .NET
//	RetryableHTTP         github.com/hashicorp/go-retryablehttp
//	Truncated             a note on truncated exponential back-off with fetch-retry
//
// The SDKs of AWS are in package aws, those of Azure in package azure, gRPC is in package grpc.
package compat
