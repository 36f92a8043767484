// Command grpcload is both ends of gRPC calls of 1 KiB, for bench/peers.
//
//	grpcload serve FILE                             serves at the address in FILE
//	grpcload unary|stream CONNS STREAMS TIME ADDR   calls, and prints "result", how many messages were answered, and how many failed
//
// unary makes one call after the other on each of STREAMS streams of CONNS connections. stream keeps that many
// calls open, and sends a message on each when the one before was answered.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 5 && (args[0] == "unary" || args[0] == "stream"):
		return call(args)
	}
	return fmt.Errorf("usage: see the package comment")
}

// size is that of each message.
const size = 1 << 10

type server struct {
	pb.UnimplementedBenchmarkServiceServer
}

func (server) UnaryCall(_ context.Context, q *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: q.Payload}, nil
}

func (server) StreamingCall(s grpc.BidiStreamingServer[pb.SimpleRequest, pb.SimpleResponse]) error {
	for {
		q, err := s.Recv()
		if err != nil {
			return nil // its client has ended it
		}
		if err := s.Send(&pb.SimpleResponse{Payload: q.Payload}); err != nil {
			return err
		}
	}
}

func serve(file string) error {
	addr, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", strings.TrimSpace(string(addr)))
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pb.RegisterBenchmarkServiceServer(s, server{})
	return s.Serve(l)
}

// call makes the calls that args ask for.
func call(args []string) error {
	var n [2]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[1+i]); err != nil {
			return err
		}
	}
	lasts, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	send := unary
	if args[0] == "stream" {
		send = stream
	}
	var answered, failed atomic.Int64
	var all sync.WaitGroup
	until := time.Now().Add(lasts)
	for range n[0] {
		conn, err := grpc.NewClient("passthrough:///"+args[4], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range n[1] {
			all.Go(func() {
				if err := send(pb.NewBenchmarkServiceClient(conn), until, &answered); err != nil {
					if failed.Add(1) == 1 {
						fmt.Fprintln(os.Stderr, err)
					}
				}
			})
		}
	}
	all.Wait()
	fmt.Println("result", answered.Load(), failed.Load())
	return nil
}

func request() *pb.SimpleRequest {
	return &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, size)}}
}

// unary makes calls until the time is over, or one fails.
func unary(c pb.BenchmarkServiceClient, until time.Time, answered *atomic.Int64) error {
	for time.Now().Before(until) {
		if _, err := c.UnaryCall(context.Background(), request()); err != nil {
			return err
		}
		answered.Add(1)
	}
	return nil
}

// stream makes one call whose messages are answered one by one.
func stream(c pb.BenchmarkServiceClient, until time.Time, answered *atomic.Int64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := c.StreamingCall(ctx)
	if err != nil {
		return err
	}
	for time.Now().Before(until) {
		if err := s.Send(request()); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		answered.Add(1)
	}
	return s.CloseSend()
}
