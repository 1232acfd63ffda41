/*
 * workflow.c
 *		The steps of a workflow as a graph.
 *
 * A step stands one column right of the last of those that it waits for; within a column, where its
 * neighbours stand on average: those on its right first, then those on its left. That is no best
 * layout, but one that people find their way in.
 */
#include "workflow.h"

#include <stdlib.h>
#include <string.h>

#define NODE_WIDTH	168
#define NODE_HEIGHT 44
#define GAP_X		56
#define GAP_Y		18
#define MARGIN		8

typedef struct Node
{
	const char *name;
	int			column;
	double		order;			/* where it wants to stand in its column */
	double		row;
} Node;

typedef struct Graph
{
	Node		nodes[MAX_DRAWN_STEPS];
	int			node_count;
	int		   *from;			/* of each edge */
	int		   *to;
	int			edge_count;
	int			columns;
	int			most_rows;
} Graph;

static int
find_node(const Graph *graph, const char *name)
{
	for (int i = 0; i < graph->node_count; i++)
		if (name && strcmp(graph->nodes[i].name, name) == 0)
			return i;
	return -1;
}

static void
read_graph(Graph *graph, const Answer *steps, const Answer *edges)
{
	graph->node_count = rows(steps);
	for (int i = 0; i < graph->node_count; i++)
		graph->nodes[i].name = cell(steps, i, "step");
	graph->from = allocate(sizeof(int) * (size_t) (rows(edges) + 1));
	graph->to = allocate(sizeof(int) * (size_t) (rows(edges) + 1));
	for (int i = 0; i < rows(edges); i++)
	{
		int			from = find_node(graph, cell(edges, i, "after"));
		int			to = find_node(graph, cell(edges, i, "step"));

		if (from < 0 || to < 0)
			continue;
		graph->from[graph->edge_count] = from;
		graph->to[graph->edge_count++] = to;
	}
}

/*
 * At most as many rounds as there are nodes: what the database holds has no cycles, and one would
 * end all the same.
 */
static void
set_columns(Graph *graph)
{
	bool		changed = true;

	for (int round = 0; round < graph->node_count && changed; round++)
	{
		changed = false;
		for (int i = 0; i < graph->edge_count; i++)
		{
			Node	   *from = &graph->nodes[graph->from[i]];
			Node	   *to = &graph->nodes[graph->to[i]];

			if (to->column <= from->column)
			{
				to->column = from->column + 1;
				changed = true;
			}
		}
	}
	for (int i = 0; i < graph->node_count; i++)
		if (graph->nodes[i].column >= graph->columns)
			graph->columns = graph->nodes[i].column + 1;
}

static int
by_order(const void *a, const void *b)
{
	const Node *x = *(Node *const *) a;
	const Node *y = *(Node *const *) b;

	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* By those that it waits for, or by those that wait for it. */
static void
set_order(const Graph *graph, Node *node, bool by_left)
{
	const int  *own = by_left ? graph->to : graph->from;
	const int  *other = by_left ? graph->from : graph->to;
	double		total = 0;
	int			count = 0;

	for (int i = 0; i < graph->edge_count; i++)
		if (&graph->nodes[own[i]] == node)
		{
			total += graph->nodes[other[i]].row;
			count++;
		}
	node->order = count > 0 ? total / count : node->row;
}

/* Columns are centred: rows are counted from the middle. */
static void
set_rows_of_column(Graph *graph, int column, bool by_left)
{
	Node	   *in_column[MAX_DRAWN_STEPS] = {NULL};
	int			count = 0;

	for (int i = 0; i < graph->node_count; i++)
		if (graph->nodes[i].column == column)
		{
			set_order(graph, &graph->nodes[i], by_left);
			in_column[count++] = &graph->nodes[i];
		}
	qsort(in_column, count, sizeof(Node *), by_order);
	for (int i = 0; i < count; i++)
		in_column[i]->row = i - (count - 1) / 2.0;
	if (count > graph->most_rows)
		graph->most_rows = count;
}

static void
set_rows(Graph *graph)
{
	for (int column = 0; column < graph->columns; column++)
		set_rows_of_column(graph, column, true);
	for (int column = graph->columns - 1; column >= 0; column--)
		set_rows_of_column(graph, column, false);
	for (int column = 0; column < graph->columns; column++)
		set_rows_of_column(graph, column, true);
}

static int
x_of(const Node *node)
{
	return MARGIN + node->column * (NODE_WIDTH + GAP_X);
}

static int
y_of(const Graph *graph, const Node *node)
{
	return MARGIN + (int) ((node->row + (graph->most_rows - 1) / 2.0) * (NODE_HEIGHT + GAP_Y));
}

static void
add_edge(Buffer *out, const Graph *graph, const Node *from, const Node *to)
{
	int			x1 = x_of(from) + NODE_WIDTH;
	int			y1 = y_of(graph, from) + NODE_HEIGHT / 2;
	int			x2 = x_of(to);
	int			y2 = y_of(graph, to) + NODE_HEIGHT / 2;

	add(out, "<path class=\"edge\" d=\"M%d %d C%d %d %d %d %d %d\"/>", x1, y1, x1 + GAP_X / 2, y1, x2 - GAP_X / 2, y2, x2, y2);
}

/* Names are cut after so many bytes, at the end of a character. */
static char *
short_name(const char *name)
{
	size_t		length = strlen(name) > 22 ? 21 : strlen(name);
	Buffer		cut;

	while (length > 0 && length < strlen(name) && (name[length] & 0xC0) == 0x80)
		length--;
	buffer_init(&cut);
	add_bytes(&cut, name, length);
	add_raw(&cut, length < strlen(name) ? "…" : "");
	return cut.data;
}

static void
add_node(Buffer *out, const Graph *graph, const Answer *steps, int row)
{
	const Node *node = &graph->nodes[row];
	const char *state = cell(steps, row, "state");
	const char *job = cell(steps, row, "job");
	int			x = x_of(node);
	int			y = y_of(graph, node);
	char	   *name = short_name(node->name);

	if (job)
		add(out, "<a href=\"%r/jobs/%u\">", options.prefix, job);
	add(out, "<g class=\"node %h\"><title>%h: %h, %h</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>"
		"<rect class=\"mark\" x=\"%d\" y=\"%d\" width=\"5\" height=\"%d\" rx=\"2\"/>"
		"<text x=\"%d\" y=\"%d\">%h</text><text class=\"sub\" x=\"%d\" y=\"%d\">%h</text></g>",
		state, node->name, cell(steps, row, "worker"), state, x, y, NODE_WIDTH, NODE_HEIGHT, x, y, NODE_HEIGHT,
		x + 14, y + 19, name, x + 14, y + 35, state);
	add_raw(out, job ? "</a>\n" : "\n");
	free(name);
}

void
add_graph(Buffer *out, const Answer *steps, const Answer *edges)
{
	Graph	   *graph = allocate(sizeof(Graph));
	int			width,
				height;

	read_graph(graph, steps, edges);
	set_columns(graph);
	set_rows(graph);
	width = 2 * MARGIN + graph->columns * NODE_WIDTH + (graph->columns - 1) * GAP_X;
	height = 2 * MARGIN + graph->most_rows * NODE_HEIGHT + (graph->most_rows - 1) * GAP_Y;
	add(out, "<div class=\"scroll\" tabindex=\"0\"><svg class=\"graph\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"group\" "
		"aria-label=\"Steps and what they wait for; the table below says the same\">\n", width, height, width, height);
	for (int i = 0; i < graph->edge_count; i++)
		add_edge(out, graph, &graph->nodes[graph->from[i]], &graph->nodes[graph->to[i]]);
	for (int i = 0; i < graph->node_count; i++)
		add_node(out, graph, steps, i);
	add_raw(out, "</svg></div>\n");
	free(graph->from);
	free(graph->to);
	free(graph);
}
