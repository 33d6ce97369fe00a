package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is the process under test, in a process group of its own, so that a wrapper dies with it.
type broker struct {
	command []string
	address string
	log     *os.File
	cmd     *exec.Cmd
	exited  chan error
}

func (b *broker) start() error {
	b.cmd = exec.Command(b.command[0], b.command[1:]...)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	b.exited = make(chan error, 1)
	go func(c *exec.Cmd, exited chan error) { exited <- c.Wait() }(b.cmd, b.exited)
	return nil
}

// kill sends SIGKILL and waits until the process is gone.
func (b *broker) kill() {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	<-b.exited
}

// ready waits until the broker answers a client, and fails if it ends by itself.
func (b *broker) ready(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		select {
		case err := <-b.exited:
			b.exited <- err
			return fmt.Errorf("broker ended by itself: %v", err)
		default:
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.RequestRetries(0))
		if err != nil {
			return err
		}
		one, stop := context.WithTimeout(ctx, 2*time.Second)
		err = cl.Ping(one)
		stop()
		cl.Close()
		if err == nil {
			return nil
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("broker not ready within %v: %w", limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
