// Package compat has the retry policies of other SDKs and libraries, by their names, for programs
// that migrate from them or must behave like them. Each computes what the library's code computes,
// and is tested with the library's published test vectors where there are any. A name with a year
// is the behaviour until then.
//
//	type or function                         SDK or library
//	AWSPreset, AWSMode                       the AWS SDKs; NewAWS makes a policy from a preset
//	AWSStandardRules, AWSKotlinJudge         the answers of AWS services that are retried
//	Azcore                                   Azure SDK for Go
//	AzureC                                   Azure IoT device SDK for C
//	AzureCSharp                              Azure IoT device SDK 2.x for .NET
//	AzureCSharpV1                            Azure IoT device SDK 1.x for .NET
//	AzureIoTOperations                       Azure IoT Operations SDK for Go
//	AzureJava                                Azure IoT device SDK for Java
//	AzureNode, AzureNodeDocumented           Azure IoT device SDK for Node.js: its code, its document
//	Cenkalti, CenkaltiV4                     github.com/cenkalti/backoff
//	Failsafe                                 github.com/failsafe-go/failsafe-go
//	FetchRetry                               fetch-retry, for JavaScript
//	GRPC                                     gRPC, as gRFC A6 defines it, with budget.RetryThrottle
//	Polly                                    Polly v8, for .NET
//	RetryableHTTP                            github.com/hashicorp/go-retryablehttp
//	Truncated                                a note on truncated exponential back-off
//
// The back-off that the Azure IoT device SDKs document is retrypolicy.ExponentialBackoffWithJitter.
package compat
