/*
 * workflow.h
 *		The steps of a workflow as a graph.
 */
#ifndef QUEUE_JOBS_WEB_WORKFLOW_H
#define QUEUE_JOBS_WEB_WORKFLOW_H

#include "page.h"

#define MAX_DRAWN_STEPS 300

/* steps: step, job, state, worker; edges: step, after. As SVG, from left to right. */
extern void add_graph(Buffer *out, const Answer *steps, const Answer *edges);

#endif
