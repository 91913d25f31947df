// Package azure has the retry policies of the Azure SDKs, by the name of the SDK, for programs that
// migrate from one of them:
//
//	type or function                                     SDK
//	Azcore                                               Azure SDK for Go
//	C                                                    IoT device SDK for C
//	CSharpV1                                             IoT device SDK 1.x for .NET
//	CSharpExponential, CSharpFixed, CSharpIncremental    IoT device SDK 2.x for .NET
//	IoTOperations                                        IoT Operations SDK for Go
//	Java                                                 IoT device SDK for Java
//	Node, NodeDocumented                                 IoT device SDK for Node.js: its code, its document
//
// The back-off that the IoT device SDKs document is retrypolicy.ExponentialBackoffWithJitter.
package azure
