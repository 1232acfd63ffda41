/*
 * shell_command.h
 *		Runs a command of the server's configuration by the shell, and reads what it prints.
 *
 * Interrupts are served meanwhile, and the command has so many seconds. If it is not over by then, or this
 * process is interrupted, the command is killed with all processes of its process group.
 */
#ifndef QUEUE_JOBS_SHELL_COMMAND_H
#define QUEUE_JOBS_SHELL_COMMAND_H

/* Gets what the command prints, in pieces as they come. No ERROR is expected of it. */
typedef void (*ShellOutput) (const char *bytes, size_t count, void *argument);

/* NULL if the command line has ended with exit status 0; else what became of it, to stand after its name in a sentence. */
extern char *shell_command_run(const char *line, int seconds, ShellOutput take, void *argument);

#endif
